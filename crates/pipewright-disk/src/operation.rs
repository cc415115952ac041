//! One operation on a file, and what has come of it.

use std::time::{Duration, Instant};

use pipewright_os::base::aligned::AlignedBuf;
use pipewright_os::disk::file::Action;

use crate::{Class, DiskFile, Error};

/// An operation that can be queued. It owns its buffer and a copy of its file.
///
/// # Drop
/// Nothing has begun, and nothing will.
#[derive(Debug)]
pub struct Operation {
    pub(crate) file: DiskFile,
    pub(crate) action: Action,
    pub(crate) buffer: AlignedBuf,
    pub(crate) offset: u64,
    /// All of the buffer, or an error.
    pub(crate) exact: bool,
}

impl Operation {
    fn new(file: &DiskFile, action: Action, buffer: AlignedBuf, offset: u64) -> Operation {
        Operation { file: file.clone(), action, buffer, offset, exact: false }
    }

    /// Reads at most as many bytes as the buffer is long; 0 is the end of the file.
    #[must_use]
    pub fn read_at(file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Operation {
        Operation::new(file, Action::Read, buffer, offset)
    }

    /// Reads until the buffer is full; an earlier end of the file is
    /// [`EndOfFile`](crate::ErrorKind::EndOfFile).
    #[must_use]
    pub fn read_exact_at(file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Operation {
        Operation { exact: true, ..Operation::read_at(file, buffer, offset) }
    }

    /// Writes from the buffer what one call takes.
    #[must_use]
    pub fn write_at(file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Operation {
        Operation::new(file, Action::Write, buffer, offset)
    }

    /// Writes all of the buffer.
    #[must_use]
    pub fn write_all_at(file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Operation {
        Operation { exact: true, ..Operation::write_at(file, buffer, offset) }
    }

    /// Waits until the disk has what was written, and everything that is known of the file.
    ///
    /// Only of writes that were done before it was submitted. A failure
    /// [poisons](DiskFile::is_poisoned) the file.
    ///
    /// # Platform
    /// Linux: `fsync`. macOS: `F_FULLFSYNC`. Windows: `FlushFileBuffers`.
    #[must_use]
    pub fn sync_all(file: &DiskFile) -> Operation {
        Operation::new(file, Action::SyncAll, AlignedBuf::default(), 0)
    }

    /// Waits until the disk has what was written, and what it takes to find it again.
    ///
    /// As [`sync_all`](Operation::sync_all) otherwise.
    ///
    /// # Platform
    /// Linux: `fdatasync`. macOS and Windows: as `sync_all`.
    #[must_use]
    pub fn sync_data(file: &DiskFile) -> Operation {
        Operation::new(file, Action::SyncData, AlignedBuf::default(), 0)
    }

    /// Gives the file room on the disk for that range; it becomes as long as that. Zeros are never written
    /// in its place.
    ///
    /// # Platform
    /// Linux: `fallocate`; [`Unsupported`](crate::ErrorKind::Unsupported) on some filesystems. macOS:
    /// `F_PREALLOCATE`. Windows: `FileAllocationInfo` and `FileEndOfFileInfo`, in two calls: what is written
    /// past the end between them is cut off, so have no such write under way.
    #[must_use]
    pub fn preallocate(file: &DiskFile, offset: u64, bytes: u64) -> Operation {
        Operation::new(file, Action::Allocate(bytes), AlignedBuf::default(), offset)
    }

    /// Its file.
    #[must_use]
    pub fn file(&self) -> &DiskFile {
        &self.file
    }

    /// Why it cannot be carried out, if that is certain before the system is asked.
    pub(crate) fn rejection(&self) -> Option<Error> {
        let kind = self.file.rejection(self.action, &self.buffer, self.offset)?;
        Some(Error::new(verb(self.action), Some(self.file.path()), kind))
    }

    /// Its buffer, without it.
    #[must_use]
    pub fn into_buffer(self) -> AlignedBuf {
        self.buffer
    }
}

/// The words for what was being done.
pub(crate) fn verb(action: Action) -> &'static str {
    match action {
        Action::Read => "read",
        Action::Write => "write to",
        Action::SyncAll | Action::SyncData => "sync",
        Action::Allocate(_) => "preallocate",
    }
}

/// The number of an operation, counted from 0 in the order in which an engine was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub(crate) u64);

impl OperationId {
    /// The number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// An operation that is done: what it owned, and what has come of it.
#[derive(Debug)]
#[must_use = "the operation may have failed"]
pub struct Done {
    /// Which it was.
    pub id: OperationId,
    /// Its file.
    pub file: DiskFile,
    /// Its buffer, also with an error. What was read is in its first [`bytes`](Completion::bytes).
    pub buffer: AlignedBuf,
    /// What has come of it.
    pub result: Result<Completion, Error>,
}

/// What is known of an operation that succeeded.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Completion {
    /// How many bytes were moved.
    pub bytes: usize,
    /// How many operations of the engine were done before it.
    pub order: u64,
    /// Whether it was asynchronous. `None`: nobody asked
    /// ([`EngineOptions::classes`](crate::EngineOptions::classes)), or it cannot be known here.
    pub class: Option<Class>,
    /// When what happened. `None`: nobody asked ([`EngineOptions::times`](crate::EngineOptions::times)).
    pub times: Option<Times>,
}

/// The moments of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// It was given to the engine.
    pub queued_at: Instant,
    /// It was about to be handed to the system, or to the threads of the engine.
    pub submitted_at: Instant,
    /// A thread of the engine took it up. `None`: no thread of the engine did.
    pub started_at: Option<Instant>,
    /// How long the calls that handed it over kept the caller. `None`: they were not watched
    /// ([`EngineOptions::classes`](crate::EngineOptions::classes)).
    pub in_call: Option<Duration>,
    /// It was done, as far as the engine had looked.
    pub completed_at: Instant,
}

impl Times {
    /// From the queue to the end.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.completed_at.saturating_duration_since(self.queued_at)
    }

    /// How long it waited for a thread of the engine. `None`: it needed none.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        self.started_at.map(|start| start.saturating_duration_since(self.submitted_at))
    }
}
