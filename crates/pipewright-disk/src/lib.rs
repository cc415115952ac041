//! Asynchronous file I/O that says of each operation whether it was.
//!
//! Disk I/O that is called asynchronous often is not: data are in memory, a write extends its file, a
//! filesystem has no way to wait later, and the call that "queues" the operation does all of it, or a hidden
//! thread waits in your place. [`Engine`] does the I/O, by the best way that the machine has, and tells the
//! [`Class`] of each operation when it is asked to.
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
//! `tokio`, `AsyncFile` is a file as tokio's `AsyncRead`, `AsyncWrite` and `AsyncSeek`.
//!
//! [`diagnosis::diagnose`] measures whether the I/O on a file is asynchronous, and says why not.
//!
//! What holds for every operation, whatever carries it out:
//!
//! * It owns its buffer and a copy of its file, and gives both back, with an error too.
//! * Nothing touches a buffer after it was given back, and none is freed before the system has let go of it,
//!   however early an operation, an engine or a task is dropped.
//! * Its result is the result: nothing is buffered behind the caller, and no error comes later.
//! * An engine holds no more than [`EngineOptions::depth`] operations, and so no more buffers.

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

/// The result of this crate's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;
