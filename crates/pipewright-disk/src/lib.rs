//! Asynchronous file I/O that reports whether each operation was really asynchronous.
//!
//! Asynchronous disk I/O often isn't. If the data are in memory, if a write extends its file, or if the
//! filesystem cannot defer a wait, the call that "queues" the operation performs all of it, or a hidden thread
//! blocks instead of the caller. [`Engine`] performs the I/O with the best mechanism the machine offers, and
//! reports the [`Class`] of each operation on request.
//!
//! ```
//! use pipewright_disk::{DiskFile, Engine, EngineOptions, Operation};
//! let path = std::env::temp_dir().join(format!("pipewright-disk-{}", std::process::id()));
//! let file = DiskFile::options().read(true).write(true).create(true).open(&path)?;
//! let mut engine = Engine::new(EngineOptions { classes: true, ..EngineOptions::default() })?;
//!
//! engine.queue(Operation::write_all_at(&file, file.buffer(64 << 10)?, 0)).expect("there is room");
//! engine.submit()?;
//! // ... other work ...
//! while let Some(done) = engine.next()? {
//!     let completion = done.result?;
//!     println!("{} bytes: {:?}", completion.bytes, completion.class);
//! }
//! # std::fs::remove_file(&path).unwrap();
//! # Ok::<(), pipewright_disk::Error>(())
//! ```
//!
//! [`SharedEngine`] does the same for any number of threads, and for tasks of any executor. With the feature
//! `tokio`, `AsyncFile` implements tokio's `AsyncRead`, `AsyncWrite` and `AsyncSeek`.
//!
//! [`diagnosis::diagnose`] measures whether I/O on a file is asynchronous, and explains why it is not.
//!
//! Every operation, with any backend, guarantees this:
//!
//! * It owns its buffer and a copy of its file handle, and returns both, even with an error.
//! * No buffer is touched after it was returned, and none is freed before the system has released it, however
//!   early an operation, an engine or a task is dropped.
//! * Its result is final: nothing is buffered behind the caller, and no error is reported later.
//! * An engine holds at most [`EngineOptions::depth`] operations, and therefore at most that many buffers.

#![forbid(unsafe_code)]

mod backend;
mod class;
pub mod diagnosis;
mod engine;
mod error;
mod file;
mod operation;
mod progress;
mod shared;
#[cfg(feature = "tokio")]
mod task;

pub use class::Class;
pub use engine::{BackendKind, Engine, EngineOptions, UnavailableBackend};
pub use error::{Error, ErrorKind, Misaligned, Part};
pub use file::{Access, DiskFile, FileOptions, SyncMode};
pub use operation::{Completion, Done, Operation, OperationId, Times};

pub use shared::{Pending, SharedEngine};
#[cfg(feature = "tokio")]
pub use task::AsyncFile;

pub use pipewright_os::base::aligned::AlignedBuf;
pub use pipewright_os::disk::file::{Alignment, Facts, Filesystem, NowaitReads, NowaitWrites};
pub use pipewright_os::disk::unavailable::{UnavailableReason, Unjudged};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
