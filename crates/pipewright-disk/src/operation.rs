//! One operation on a file, and its completion.

use std::time::{Duration, Instant};

use pipewright_os::base::memory::AlignedBuf;
use pipewright_os::disk::file::Action;

use crate::{Class, DiskFile, Error};

/// An operation that can be queued. It owns its buffer and a copy of its file handle.
///
/// # Drop
/// An operation that was not queued is discarded. It never starts.
#[derive(Debug)]
pub struct Operation {
    pub(crate) file: DiskFile,
    pub(crate) action: Action,
    pub(crate) buffer: AlignedBuf,
    pub(crate) offset: u64,
    /// True if the operation has to transfer the whole buffer or fail.
    pub(crate) exact: bool,
}

impl Operation {
    fn new(file: &DiskFile, action: Action, buffer: AlignedBuf, offset: u64) -> Operation {
        Operation { file: file.clone(), action, buffer, offset, exact: false }
    }

    /// Reads up to the length of the buffer. 0 bytes mean the end of the file.
    #[must_use]
    pub fn read_at(file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Operation {
        Operation::new(file, Action::Read, buffer, offset)
    }

    /// Reads until the buffer is full. If the file ends earlier, the error is
    /// [`EndOfFile`](crate::ErrorKind::EndOfFile).
    #[must_use]
    pub fn read_exact_at(file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Operation {
        Operation { exact: true, ..Operation::read_at(file, buffer, offset) }
    }

    /// Writes as much of the buffer as one call accepts.
    #[must_use]
    pub fn write_at(file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Operation {
        Operation::new(file, Action::Write, buffer, offset)
    }

    /// Writes the whole buffer.
    #[must_use]
    pub fn write_all_at(file: &DiskFile, buffer: AlignedBuf, offset: u64) -> Operation {
        Operation { exact: true, ..Operation::write_at(file, buffer, offset) }
    }

    /// Flushes the written data and all metadata of the file to the disk.
    ///
    /// Covers only writes that completed before the sync was submitted. A failure
    /// [poisons](DiskFile::is_poisoned) the file.
    ///
    /// # Platform
    /// Linux: `fsync`. macOS: `F_FULLFSYNC`. Windows: `FlushFileBuffers`.
    #[must_use]
    pub fn sync_all(file: &DiskFile) -> Operation {
        Operation::new(file, Action::SyncAll, AlignedBuf::default(), 0)
    }

    /// Flushes the written data to the disk, and the metadata needed to find them again.
    ///
    /// Behaves like [`sync_all`](Operation::sync_all) otherwise.
    ///
    /// # Platform
    /// Linux: `fdatasync`. macOS and Windows: same as `sync_all`.
    #[must_use]
    pub fn sync_data(file: &DiskFile) -> Operation {
        Operation::new(file, Action::SyncData, AlignedBuf::default(), 0)
    }

    /// Allocates disk space for the range and extends the file to its end. Never falls back to writing zeros.
    ///
    /// # Platform
    /// Linux: `fallocate`; [`Unsupported`](crate::ErrorKind::Unsupported) on some filesystems. macOS:
    /// `F_PREALLOCATE`. Windows: `FileAllocationInfo`, then `FileEndOfFileInfo`. Data written past the end
    /// of the file between these two calls are cut off, so have no such write in flight.
    #[must_use]
    pub fn preallocate(file: &DiskFile, offset: u64, bytes: u64) -> Operation {
        Operation::new(file, Action::Allocate(bytes), AlignedBuf::default(), offset)
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &DiskFile {
        &self.file
    }

    /// Returns the error of an operation that cannot succeed, without a system call.
    pub(crate) fn rejection(&self) -> Option<Error> {
        let kind = self.file.rejection(self.action, &self.buffer, self.offset)?;
        Some(Error::new(verb(self.action), Some(self.file.path()), kind))
    }

    /// Returns the buffer and discards the operation.
    #[must_use]
    pub fn into_buffer(self) -> AlignedBuf {
        self.buffer
    }
}

/// Returns the verb that names an action in errors.
pub(crate) fn verb(action: Action) -> &'static str {
    match action {
        Action::Read => "read",
        Action::Write => "write to",
        Action::SyncAll | Action::SyncData => "sync",
        Action::Allocate(_) => "preallocate",
    }
}

/// The number of an operation, counted from 0 in the order in which its engine accepted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(pub(crate) u64);

impl OperationId {
    /// Returns the number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A finished operation: everything it owned, and its result.
#[derive(Debug)]
#[must_use = "the operation may have failed"]
pub struct Done {
    /// The number of the operation.
    pub id: OperationId,
    /// The file.
    pub file: DiskFile,
    /// The buffer, returned even with an error. The first [`bytes`](Completion::bytes) of it were read.
    pub buffer: AlignedBuf,
    /// The completion, or the error.
    pub result: Result<Completion, Error>,
}

/// The facts about a successful operation.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Completion {
    /// The number of bytes transferred.
    pub bytes: usize,
    /// The position in the order of completion: the number of operations that the engine finished earlier.
    pub order: u64,
    /// The class. `None` if it was not requested ([`EngineOptions::classes`](crate::EngineOptions::classes))
    /// or cannot be determined here.
    pub class: Option<Class>,
    /// The timestamps. `None` if they were not requested
    /// ([`EngineOptions::times`](crate::EngineOptions::times)).
    pub times: Option<Times>,
}

/// The timestamps of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// The time at which the engine accepted the operation.
    pub queued_at: Instant,
    /// The time just before it was submitted to the system or to the engine's threads.
    pub submitted_at: Instant,
    /// The time at which a thread of the engine started it. `None` if no thread of the engine did.
    pub started_at: Option<Instant>,
    /// The time that the submitting calls took. `None` if they were not observed
    /// ([`EngineOptions::classes`](crate::EngineOptions::classes)).
    pub in_call: Option<Duration>,
    /// The time at which the engine found it finished.
    pub completed_at: Instant,
}

impl Times {
    /// Returns the time from queueing to completion.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.completed_at.saturating_duration_since(self.queued_at)
    }

    /// Returns the time spent waiting for a thread of the engine. `None` if no thread was needed.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        self.started_at.map(|start| start.saturating_duration_since(self.submitted_at))
    }
}
