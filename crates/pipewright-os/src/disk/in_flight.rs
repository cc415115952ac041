//! Requests that the kernel may be carrying out, by their tokens.

use std::mem;

use crate::disk::file::{Action, Request};

/// A place for each request that can be under way at once.
///
/// A request stays here from before the kernel hears of it until the kernel has said that it is done: so
/// its buffer is not freed and its file is not closed, whatever becomes of who asked for it.
#[derive(Debug)]
pub(crate) struct InFlight {
    places: Vec<Option<Request>>,
    count: usize,
}

impl InFlight {
    pub(crate) fn new(depth: usize) -> InFlight {
        InFlight { places: (0..depth).map(|_| None).collect(), count: 0 }
    }

    /// How many there are.
    #[cfg(target_os = "linux")]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether a request can have that token.
    pub(crate) fn is_free(&self, token: usize) -> bool {
        matches!(self.places.get(token), Some(None))
    }

    /// Keeps a request; its token must be free.
    pub(crate) fn put(&mut self, token: usize, request: Request) {
        if let Some(place) = self.places.get_mut(token) {
            self.count += usize::from(place.is_none());
            *place = Some(request);
        }
    }

    /// Keeps a request of those interfaces that only read and write; gives any other back, and one whose token is
    /// not free.
    pub(crate) fn put_transfer(&mut self, token: usize, request: Request) -> Result<(), Request> {
        let is_transfer = matches!(request.action, Action::Read | Action::Write);
        if !is_transfer || !self.is_free(token) {
            return Err(request);
        }
        self.put(token, request);
        Ok(())
    }

    /// Looks at a request.
    pub(crate) fn get(&self, token: usize) -> Option<&Request> {
        self.places.get(token)?.as_ref()
    }

    /// Gives a request back, of which the kernel has let go.
    pub(crate) fn take(&mut self, token: usize) -> Option<Request> {
        let request = self.places.get_mut(token)?.take();
        self.count -= usize::from(request.is_some());
        request
    }

    /// Keeps what is left for ever: the kernel may still write to it.
    pub(crate) fn leak(&mut self) {
        mem::forget(mem::take(&mut self.places));
    }
}
