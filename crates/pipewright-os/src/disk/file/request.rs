//! One operation on a file, with everything that the kernel may touch while it is under way.

use std::io;

use super::File;
use crate::base::aligned::AlignedBuf;

/// The most bytes that one call moves (Linux cuts longer ones, see read(2)).
pub const MAX_BYTES: usize = 0x7fff_f000;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Read into the buffer.
    Read,
    /// Write from the buffer.
    Write,
    /// Wait until the disk has all of it.
    SyncAll,
    /// Wait until the disk has its data.
    SyncData,
    /// Give it room for so many bytes.
    Allocate(u64),
}

/// A request that is done, or has been given up.
#[derive(Debug)]
pub struct Finished {
    /// What it was called.
    pub token: usize,
    /// The request, with its file and its buffer.
    pub request: Request,
    /// How many bytes were moved by the one call, or what the system said.
    pub result: io::Result<usize>,
}

/// One operation: it owns its file and its buffer, and whoever carries it out gives it back.
#[derive(Debug)]
pub struct Request {
    /// The file, which stays open for as long.
    pub file: File,
    /// What is to be done.
    pub action: Action,
    /// The memory, which stays there for as long.
    pub buffer: AlignedBuf,
    /// Where in the buffer the first byte is that has not been moved yet.
    pub from: usize,
    /// Where in the file that byte is.
    pub offset: u64,
    /// The kernel may wait: it has refused to go on without that before.
    pub may_wait: bool,
    /// The file was opened to bypass the cache.
    pub direct: bool,
}

impl Request {
    /// How many bytes the next call is to move.
    #[must_use]
    pub fn left(&self) -> usize {
        self.buffer.len().saturating_sub(self.from).min(MAX_BYTES)
    }

    /// Carries it out, on this thread: [`File::perform`].
    ///
    /// # Errors
    /// What the system says.
    pub fn perform(&mut self) -> io::Result<usize> {
        let rest = self.buffer.get_mut(self.from..).unwrap_or_default();
        self.file.perform(self.action, rest, self.offset)
    }
}

impl File {
    /// One call of an operation, on this thread: what it moves goes to or comes from the buffer.
    ///
    /// # Errors
    /// What the system says.
    pub fn perform(&self, action: Action, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = buffer.len().min(MAX_BYTES);
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        match action {
            Action::Read => self.read_at(buffer, offset),
            Action::Write => self.write_at(buffer, offset),
            Action::SyncAll => self.sync_all().map(|()| 0),
            Action::SyncData => self.sync_data().map(|()| 0),
            Action::Allocate(bytes) => self.allocate(offset, bytes).map(|()| 0),
        }
    }
}
