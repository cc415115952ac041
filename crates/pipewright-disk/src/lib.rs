//! Asynchronous file I/O that reports whether each operation was really asynchronous.
//!
//! Asynchronous disk I/O often isn't. If the data are in memory, if a write extends its file, or if the
//! filesystem cannot wait in the background, the call that "queues" the operation performs all of it, or a hidden
//! thread blocks instead of the caller. [`Engine`] performs the I/O with the best mechanism the machine offers. On
//! request it reports the [`Class`] of each operation.
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
//! An [`Engine`] belongs to one thread. [`SharedEngine`] serves any number of threads, and tasks of any executor. With
//! the feature `tokio`, `AsyncFile` implements tokio's `AsyncRead`, `AsyncWrite` and `AsyncSeek`.
//!
//! [`diagnosis::diagnose`] measures whether I/O on a file is asynchronous, and explains why it is not.
//!
//! Every backend guarantees this:
//!
//! * An operation owns its buffer and a copy of its file handle, and returns both, even with an error.
//! * No buffer is touched after it was returned, and none is freed before the system has released it, however
//!   early an operation, an engine or a task is dropped.
//! * A result is final: this crate buffers no writes, and reports each error of a call with its operation. (The
//!   system may cache a write; a [sync](Operation::sync_all) reports that it could not reach the disk.)
//! * An engine holds at most [`EngineOptions::depth`] operations, and therefore at most that many buffers.

#![forbid(unsafe_code)]
// docs.rs says beside each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

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

pub use pipewright_os::base::memory::AlignedBuf;
pub use pipewright_os::disk::file::{Alignment, Facts, Filesystem, NowaitReads, NowaitWrites};
pub use pipewright_os::disk::unavailable::{UnavailableReason, Unjudged};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The examples of the README of this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
