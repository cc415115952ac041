//! One operation on a file, with everything that the kernel may touch while it is in flight, and the table of those
//! in flight.

use std::io;

use super::File;
use crate::base::memory::AlignedBuf;

/// The maximum number of bytes of one call (Linux truncates longer ones, see read(2)).
pub const MAX_BYTES: usize = 0x7fff_f000;

/// The kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Reads into the buffer.
    Read,
    /// Writes from the buffer.
    Write,
    /// Flushes data and metadata to the disk.
    SyncAll,
    /// Flushes data to the disk.
    SyncData,
    /// Allocates disk space for that many bytes.
    Allocate(u64),
}

impl Action {
    /// Returns true for a sync of either kind.
    #[must_use]
    pub fn is_sync(self) -> bool {
        matches!(self, Action::SyncAll | Action::SyncData)
    }
}

/// A request that is complete or was cancelled.
#[derive(Debug)]
pub struct FinishedRequest {
    /// The token of the request.
    pub token: usize,
    /// The request, with its file and its buffer.
    pub request: FileRequest,
    /// The number of bytes that the call transferred, or the system's error.
    pub result: io::Result<usize>,
    /// False if the system never began with it, because it was cancelled before.
    pub ran: bool,
}

/// One operation. It owns its file and its buffer; the backend returns it when it is complete.
#[derive(Debug)]
pub struct FileRequest {
    /// The file, which stays open while the request is in flight.
    pub file: File,
    /// The kind of operation.
    pub action: Action,
    /// The buffer, which stays allocated while the request is in flight.
    pub buffer: AlignedBuf,
    /// The index in the buffer of the first byte that was not transferred yet.
    pub from: usize,
    /// The offset in the file of that byte.
    pub offset: u64,
    /// True if the kernel may block, because it refused to go on without blocking.
    pub may_wait: bool,
    /// True if the file was opened for direct I/O.
    pub direct: bool,
}

impl FileRequest {
    /// Returns the number of bytes that the next call has to transfer.
    #[must_use]
    pub fn left(&self) -> usize {
        self.buffer.len().saturating_sub(self.from).min(MAX_BYTES)
    }

    /// Performs the operation on the calling thread with [`File::perform`].
    ///
    /// # Errors
    /// The system's error.
    pub fn perform(&mut self) -> io::Result<usize> {
        let rest = self.buffer.get_mut(self.from..).unwrap_or_default();
        self.file.perform(self.action, rest, self.offset)
    }
}

impl File {
    /// Performs one call of an operation on the calling thread, into or from the buffer.
    ///
    /// # Errors
    /// The system's error.
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

/// A slot for each request that can be in flight.
///
/// A request stays here from before it is submitted until the kernel has completed it. During that time
/// its buffer is not freed and its file is not closed, even if its caller is gone.
#[cfg(any(target_os = "linux", windows))]
#[derive(Debug)]
pub(crate) struct InFlight {
    /// By token.
    places: Vec<Option<FileRequest>>,
    count: usize,
}

#[cfg(any(target_os = "linux", windows))]
impl InFlight {
    pub(crate) fn new(depth: usize) -> InFlight {
        InFlight { places: (0..depth).map(|_| None).collect(), count: 0 }
    }

    /// Returns the number of requests.
    #[cfg(target_os = "linux")]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns true if a request can use the token.
    pub(crate) fn is_free(&self, token: usize) -> bool {
        matches!(self.places.get(token), Some(None))
    }

    /// Stores a request. Its token must be free.
    pub(crate) fn put(&mut self, token: usize, request: FileRequest) {
        if let Some(place) = self.places.get_mut(token) {
            self.count += usize::from(place.is_none());
            *place = Some(request);
        }
    }

    /// Stores a request of an interface that only reads and writes. Returns any other request, and one whose
    /// token is not free.
    pub(crate) fn put_transfer(
        &mut self,
        token: usize,
        request: FileRequest,
    ) -> Result<(), FileRequest> {
        let is_transfer = matches!(request.action, Action::Read | Action::Write);
        if !is_transfer || !self.is_free(token) {
            return Err(request);
        }
        self.put(token, request);
        Ok(())
    }

    pub(crate) fn get(&self, token: usize) -> Option<&FileRequest> {
        self.places.get(token)?.as_ref()
    }

    /// Removes a request that the kernel has released.
    pub(crate) fn take(&mut self, token: usize) -> Option<FileRequest> {
        let request = self.places.get_mut(token)?.take();
        self.count -= usize::from(request.is_some());
        request
    }

    /// Leaks all requests, because the kernel may still write to their buffers.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.places));
    }
}
