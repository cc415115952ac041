//! Stand-ins for the asynchronous I/O that this system lacks. No value of these types can exist.

use std::io;
use std::sync::Arc;

use crate::base::wake::Wake;
use crate::disk::file::{FileRequest, FinishedRequest};
use crate::disk::unavailable::UnavailableReason;

/// A queue that cannot be created.
#[derive(Debug)]
pub(crate) enum Absent {}

/// Stands in for io_uring.
#[cfg(not(target_os = "linux"))]
pub(crate) type Uring = Absent;

/// Stands in for Linux AIO.
#[cfg(not(target_os = "linux"))]
pub(crate) type Aio = Absent;

/// Stands in for a completion port.
#[cfg(not(windows))]
pub(crate) type CompletionPort = Absent;

impl Absent {
    /// Fails, whatever the options are.
    pub(crate) fn new<Options>(
        _: Options,
        _: Option<Arc<Wake>>,
    ) -> Result<Absent, UnavailableReason> {
        Err(UnavailableReason::NotThisSystem)
    }

    pub(crate) fn push(&mut self, _: usize, _: FileRequest) -> Result<(), FileRequest> {
        match *self {}
    }

    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn wait(&mut self) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn take(&mut self) -> Option<FinishedRequest> {
        match *self {}
    }

    pub(crate) fn cancel(&mut self, _: usize) {
        match *self {}
    }

    #[cfg(not(windows))]
    pub(crate) fn call_status(&self, _: usize) -> ! {
        match *self {}
    }

    #[cfg(not(windows))]
    pub(crate) fn waker(&self) -> fn() {
        match *self {}
    }
}
