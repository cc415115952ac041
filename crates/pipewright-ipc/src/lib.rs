//! Messages between a host and the worker processes that it starts.
//!
//! A [`Channel`] carries messages of any length both ways, whole and in order: through a ring of shared
//! memory where both sides have it, through a socket where not, and nobody notices which. It waits
//! without ever hanging: a worker that dies, stops or stays silent is an [`Error`] that says so, and how
//! it died. A worker that lies is an error too, and never a crash.
//!
//! ```no_run
//! // The host:
//! use pipewright::Command;
//! use pipewright_ipc::{Channel, Options};
//!
//! let mut command = Command::new("my-worker");
//! let mut worker: Channel = Channel::start(&mut command, &Options::default())?;
//! worker.send_bytes(b"hello")?;
//! assert_eq!(worker.recv()?.bytes()?, b"olleh");
//! worker.close()?;
//!
//! // The worker, in the first line of its `main`:
//! pipewright_ipc::worker::serve(&Options::default(), |question, answer| {
//!     answer.extend(question.iter().rev());
//! })?;
//! # Ok::<(), pipewright_ipc::Error>(())
//! ```
//!
//! | call | what |
//! |---|---|
//! | [`Channel::start`], [`worker::channel`], [`worker::serve`] | the two sides of a connection |
//! | [`send_bytes`](Channel::send_bytes), [`recv`](Channel::recv) | one message |
//! | [`reserve`](Channel::reserve) | a message that is written where it will be read |
//! | [`Message::bytes`], [`Message::read_into`] | copied out |
//! | [`Message::lease`] | read where it is |
//! | [`queue_bytes`](Channel::queue_bytes), [`flush`](Channel::flush) | many small ones together |
//! | [`try_send_bytes`](Channel::try_send_bytes), [`try_recv`](Channel::try_recv) | without waiting |
//! | [`send_with_handles`](Channel::send_with_handles), [`Message::take_handles`] | open files with them |
//! | [`stats`](Channel::stats) | what went where, and why |
//! | [`Pool::call`], [`begin`](Pool::begin) | a question for any of several workers that are kept for it |
//! | `recv_async`, `send_bytes_async` and so on | the same for tasks: feature `tokio`. A [`PendingCall`] is a future anyway |
//!
//! Whoever writes another side finds the bytes in `docs/wire.md`.

#![forbid(unsafe_code)]

#[macro_use]
mod forced;

mod channel;
mod error;
mod handshake;
mod host;
mod options;
mod output;
mod pool;
mod ring;
mod stats;
mod trace;
mod tune;
mod wire;
mod words;
pub mod worker;

pub use channel::{Channel, Lease, Loan, Message, Raw};
pub use error::{Error, ErrorKind, Peer, Side};
pub use options::{Options, SharedMemory};
pub use pool::{
    CallEvent, LogLine, OnLine, PendingCall, Pool, PoolOptions, PoolStats, Question, Reply,
    Request, Schedule, WorkerState, WorkerStatus,
};
pub use stats::{Direction, Stats};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
