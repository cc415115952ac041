//! The requests that the kernel may be working on, by token.

use std::mem;

use crate::disk::file::{Action, FileRequest};

/// A slot for each request that can be in flight.
///
/// A request stays here from before it is submitted until the kernel has completed it. During that time
/// its buffer is not freed and its file is not closed, even if its caller is gone.
#[derive(Debug)]
pub(crate) struct InFlight {
    places: Vec<Option<FileRequest>>,
    count: usize,
}

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
        mem::forget(mem::take(&mut self.places));
    }
}
