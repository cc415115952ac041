//! Messages between a host and the worker processes that it starts.
//!
//! A [`Channel`] carries messages of any length both ways, whole and in order, through a ring of shared memory if both
//! sides have it, and through a socket otherwise. A [`Pool`] keeps workers and gives each call to one of them.
//!
//! A call to a worker that dies ends with an [`Error`] that has the worker's exit status. A [timeout](Options::timeout)
//! ([of a pool](PoolOptions::call_timeout)) bounds a call to a worker that is stopped or silent; there is none by
//! default. A worker that violates the protocol causes an error, never a crash.
//!
//! A program that is its own worker, with values and a typed error (feature `service`; the module `service` has more):
//!
#![cfg_attr(feature = "service", doc = "```no_run")]
#![cfg_attr(not(feature = "service"), doc = "```ignore")]
//! use pipewright_ipc::{Command, PoolOptions, service, worker};
//! # #[derive(serde::Serialize, serde::Deserialize)]
//! # pub struct Unit { path: String }
//! # #[derive(serde::Serialize, serde::Deserialize)]
//! # pub struct Object { bytes: Vec<u8> }
//! # #[derive(Debug, serde::Serialize, serde::Deserialize)]
//! # pub struct SyntaxError { line: u32 }
//!
//! #[service]
//! trait Compile {
//!     fn compile(&self, unit: Unit) -> Result<Object, SyntaxError>;
//! }
//!
//! struct Compiler;
//!
//! impl Compile for Compiler {
//!     fn compile(&self, unit: Unit) -> Result<Object, SyntaxError> {
//!         Ok(Object { bytes: unit.path.into_bytes() })
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // The client starts this program once more for each worker.
//!     if worker::is_worker() {
//!         return Ok(Compiler.serve(&Default::default())?);
//!     }
//!     let client = CompileClient::new(Command::new(std::env::current_exe()?), PoolOptions::default())?;
//!     // The `?` is for the call; the method's own error is in the value. In a task: `compile_async`.
//!     match client.compile(Unit { path: "main.c".to_owned() })? {
//!         Ok(object) => println!("{} bytes", object.bytes.len()),
//!         Err(SyntaxError { line }) => println!("line {line}: syntax error"),
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The same with bytes, and without a feature:
//!
//! ```no_run
//! use pipewright_ipc::{Command, Pool, PoolOptions, worker};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // The pool starts this program once more for each worker.
//!     if worker::is_worker() {
//!         return Ok(worker::serve(&Default::default(), |question, answer| {
//!             answer.extend(question.iter().rev());
//!         })?);
//!     }
//!     let pool = Pool::new(Command::new(std::env::current_exe()?), PoolOptions::default())?;
//!     assert_eq!(*pool.call("hello")?, *b"olleh");
//!     pool.shut_down();
//!     Ok(())
//! }
//! ```
//!
//! One worker and a channel to it:
//!
//! ```no_run
//! use pipewright_ipc::{Channel, Command, Options};
//!
//! let mut command = Command::new("my-worker");
//! let mut worker: Channel = Channel::start(&mut command, &Options::default())?;
//! worker.send_bytes(b"hello")?;
//! assert_eq!(worker.recv()?.bytes()?, b"olleh");
//! worker.close()?;
//! # Ok::<(), pipewright_ipc::Error>(())
//! ```
//!
//! # When to use which
//!
//! * The attribute `service` on a trait: typed calls of workers in Rust, on a [`Pool`]. Both sides check that they have
//!   the same methods.
//! * [`Pool`]: independent requests, each with one reply. It starts workers on demand, keeps them, replaces those that
//!   end, and serves any number of threads and tasks.
//! * [`Channel`]: a conversation with one worker. Each side sends any message at any time; there are no calls and no
//!   restarts.
//! * [`worker::serve`]: the worker's side of both, with one answer to each request. [`worker::serve_calls`] also sends
//!   parts of a reply, asks the host questions and sees cancellations. [`worker::channel`] is the other end of a
//!   conversation.
//! * [`worker::is_worker`]: the first line of `main` in a program that starts itself as its worker.
//! * [`pipewright::Command`], if the other program does not use this crate: it runs the program and captures its
//!   output.
//!
//! | call | use |
//! |---|---|
//! | [`Channel::start`], [`worker::channel`], [`worker::serve`] | the two sides of a connection |
//! | [`send_bytes`](Channel::send_bytes), [`recv`](Channel::recv) | one message |
//! | [`reserve`](Channel::reserve) | a message written directly where the other side reads it |
//! | [`send_filled`](Channel::send_filled) | a long message that is made while its first part is read |
//! | [`Message::bytes`], [`Message::read_into`] | a message, copied out |
//! | [`Message::lease`] | a message, read in place |
//! | [`queue_bytes`](Channel::queue_bytes), [`flush`](Channel::flush) | many small messages together |
//! | [`try_send_bytes`](Channel::try_send_bytes), [`try_recv`](Channel::try_recv) | one message, without waiting |
//! | [`send_with_handles`](Channel::send_with_handles), [`Message::take_handles`] | open files with a message |
//! | [`stats`](Channel::stats) | statistics, and the reason why shared memory is not in use |
//! | `#[service]` | a trait whose methods are calls of a worker: feature `service` |
//! | [`Pool::call`], [`begin`](Pool::begin) | a call to any worker of a pool |
//! | [`Pool::begin_with_items`] | a call whose request comes in pieces |
//! | `Request::of`, `Reply::value`, `Channel::send`, `Message::value` | values instead of bytes: feature `serde` |
//! | `recv_async`, `send_bytes_async` and so on | the calls of a channel for tasks: feature `tokio` |
//! | [`Pool::call_async`], [`PendingCall`] | a call for a task of any runtime, without a feature |
//!
//! # Features
//!
//! None is on by default.
//!
//! * `service`: typed services, by the attribute `service` on a trait. Includes `serde`.
//! * `serde`: values as messages, by serde and postcard: `Channel::send`, `Message::value`, `Request::of`,
//!   `Reply::value`.
//! * `tokio`: the calls of a [`Channel`] for tasks, with the suffix `_async`. The async calls of a [`Pool`] work in any
//!   runtime without it.
//! * `tracing`: events for the end of each connection, and for workers that start, end, and fail to start.
//!
//! # Related crates
//!
//! * [`pipewright`] runs processes: [`Command`], pipelines and process trees. [`Command`], [`Child`], [`ExitStatus`],
//!   [`Handle`] and the other types that this crate takes or returns are re-exported.
//! * `pipewright-disk` reads and writes files asynchronously, and reports operations that were not.
//! * `pipewright-cli` is the tool `pipewright`; its `bench ipc` measures channels on this machine.
//!
//! # Workers in other languages
//!
//! The repository has libraries for workers in C, Python and Node, each one file without dependencies:
//! `docs/workers.md` shows a worker in each. `docs/wire.md` specifies the bytes, for other languages.

#![forbid(unsafe_code)]
// docs.rs says beside each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use(run_async_for_test)]
extern crate pipewright_os;

mod channel;
#[cfg(feature = "serde")]
mod codec;
mod connection;
mod error;
mod handshake;
mod options;
mod pool;
mod process;
mod ring;
mod trace;
mod tune;
mod wire;

#[cfg(feature = "service")]
pub mod service;
pub mod worker;

pub use crate::options::{Direction, Stats};
pub use channel::{Channel, Lease, Loan, Message, Raw};
pub use error::{Error, ErrorKind, Peer, Side};
pub use options::{Options, SharedMemory};
/// Makes a trait a service: a worker implements it, and a generated client calls it. The module
/// [`service`](mod@service) has the documentation.
#[cfg(feature = "service")]
pub use pipewright_ipc_macros::service;
pub use pool::{
    CallEvent, ItemSender, LogLine, OnLine, PendingCall, Pool, PoolOptions, PoolStats, Question,
    Reply, Request, Schedule, WorkerState, WorkerStatus,
};

#[doc(no_inline)]
pub use pipewright::{CancelToken, Child, Command, Scope, Source, Stdio};
// Inlined: otherwise each would link to the crate that defines it, which users do not need.
#[cfg(feature = "tokio")]
#[doc(inline)]
pub use pipewright::{AsyncPipeReader, AsyncPipeWriter};
#[doc(inline)]
pub use pipewright::{
    ExitStatus, ExitStatusError, Handle, HandleKind, Mode, PipeReader, PipeWriter, Signal,
    UnknownSignal,
};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// The examples of the README of this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
