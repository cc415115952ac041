//! Typed services: a worker implements a trait, and a client calls its methods. Feature `service`.
//!
//! The attribute [`service`](macro@crate::service) on a trait `Compile` keeps the trait and adds
//!
//! * `Compile::serve`, a method of the trait: connects this worker to its host, and answers its calls;
//! * `CompileClient`, a struct: calls the methods in a [`Pool`](crate::Pool). It has each method of the trait, and the
//!   same with the suffix `_async` for a task of any runtime. Each returns `Result<T, Error>`, where `T` is what the
//!   method of the trait returns. So an error of the method is apart from an error of the call:
//!   `client.compile(unit)??` takes both.
//!
//! ```no_run
//! use pipewright_ipc::{Command, PoolOptions, service, worker};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Unit {
//!     path: String,
//! }
//!
//! #[derive(Debug, Serialize, Deserialize)]
//! struct SyntaxError {
//!     line: u32,
//! }
//!
//! #[service]
//! trait Compile {
//!     /// Compiles a unit to an object.
//!     fn compile(&mut self, unit: Unit) -> Result<Vec<u8>, SyntaxError>;
//! }
//!
//! struct Compiler;
//!
//! impl Compile for Compiler {
//!     fn compile(&mut self, unit: Unit) -> Result<Vec<u8>, SyntaxError> {
//!         if unit.path.is_empty() { Err(SyntaxError { line: 1 }) } else { Ok(unit.path.into_bytes()) }
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     if worker::is_worker() {
//!         return Ok(Compiler.serve(&Default::default())?);
//!     }
//!     let client = CompileClient::new(Command::new(std::env::current_exe()?), PoolOptions::default())?;
//!     match client.compile(Unit { path: "main.c".to_owned() })? {
//!         Ok(object) => println!("{} bytes", object.len()),
//!         Err(SyntaxError { line }) => println!("line {line}: syntax error"),
//!     }
//!     client.shut_down();
//!     Ok(())
//! }
//! ```
//!
//! # Methods
//! A method takes `&self` or `&mut self`, then values that own what they have: types with serde's `Serialize` and
//! `Deserialize`, which its return type needs too. One parameter may be a reference to the call:
//!
//! | parameter | the method can | the client's method returns |
//! |---|---|---|
//! | none | | the value, after the call |
//! | `&mut Context<'_>` | see a cancellation: [`Context`] | the value, after the call |
//! | `&mut Output<'_, T>` | also send items: [`Output`] | a [`Receiver`] at once |
//! | `&mut Input<'_, T>` | also take items: [`Input`] | a [`Sender`] and a [`PendingReply`] at once |
//! | `&mut Duplex<'_, In, Out>` | both: [`Duplex`] | a [`Sender`] and a [`Receiver`] at once |
//!
//! `#[idempotent]` on a method lets the pool [retry](crate::Request::idempotent) it on another worker if its worker
//! ends.
//!
//! `begin_NAME` begins a call of a method without streams, and returns a [`PendingReply`].
//!
//! # Bytes
//! One argument of a method, the last one of a type that is written `Vec<u8>` or `Bytes`, goes to the worker as it is:
//! it is not serialized. So does a return value `Vec<u8>`, `Bytes`, `Result<Vec<u8>, E>` or `Result<Bytes, E>` of a
//! method without streams. The other arguments of a call follow the bytes, which are not copied before they are sent. A
//! `Result` takes one byte behind those of its value: a vector without room for it is extended by the allocator, which
//! may copy it. (A type of yours that is called `Bytes` has to convert from and into a `Vec<u8>`.) Anywhere else, in a
//! structure or as an item, a `Vec<u8>` is serialized byte by byte, which is several times slower: write [`Bytes`]
//! there.
//!
//! # Cancellation
//! A call is cancelled if its future, its `PendingReply`, its `Receiver` or its unfinished `Sender` is dropped, and by
//! the token and the timeout of the client (`client.cancel(&token)`, `client.timeout(time)`). The method sees it in its
//! `Context` or streams. A worker that does not end a cancelled call within
//! [`cancel_grace`](crate::PoolOptions::cancel_grace) is killed.
//!
//! # Identity
//! Both sides compare the name of the trait, its version and a hash of the signatures of its methods during the
//! handshake. A difference is [`Refused`](crate::ErrorKind::Refused) with the field `service`, on both sides.
//! `#[service(version = 2)]` changes the version, for a new meaning behind the same signatures or for other fields in
//! their types, which the hash does not include. `#[service(name = "...")]` replaces the name.
//!
//! # Panics
//! A panic in a method ends the worker. Its call fails with [`Lost`](crate::ErrorKind::Lost), which has the message,
//! and the pool starts another worker.
//!
//! # Mistakes
//! They are errors of the compiler, at their place:
//!
//! ```compile_fail
//! #[pipewright_ipc::service]
//! trait Wrong {
//!     fn compile(&self, unit: &str);
//! }
//! ```
//!
//! ```compile_fail
//! #[pipewright_ipc::service]
//! trait Wrong {
//!     async fn compile(&self);
//! }
//! ```
//!
//! ```compile_fail
//! #[pipewright_ipc::service]
//! trait Wrong {
//!     fn compile<T>(&self, unit: T);
//! }
//! ```
//!
//! ```compile_fail
//! use pipewright_ipc::service::Input;
//! #[pipewright_ipc::service]
//! trait Wrong {
//!     // Nothing keeps the items for another worker.
//!     #[idempotent]
//!     fn compile(&self, units: &mut Input<'_, String>);
//! }
//! ```

mod bytes;
mod client;
mod method;

pub use bytes::Bytes;
pub use client::{PendingReply, Receiver, Sender};
pub use method::{Context, Duplex, Input, Output};

/// The code that the attribute's expansion uses.
#[doc(hidden)]
pub mod __private {
    pub use super::client::ServiceClient;
    pub use super::method::{
        FromCall, Method, Received, answer, answer_bytes, answer_result, bytes, result, serve,
        stream, unknown_method, value,
    };
}
