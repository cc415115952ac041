//! The stand-in for asynchronous I/O that this system does not have. It cannot be made.

use std::io;
use std::sync::Arc;

use crate::base::wake::Wake;
use crate::disk::file::{Finished, Request};
use crate::disk::unavailable::UnavailableReason;

/// There is none.
#[derive(Debug)]
pub(crate) enum Absent {}

/// There is none.
#[cfg(not(target_os = "linux"))]
pub(crate) type Ring = Absent;

/// There is none.
#[cfg(not(target_os = "linux"))]
pub(crate) type Aio = Absent;

/// There is none.
#[cfg(not(windows))]
pub(crate) type Port = Absent;

impl Absent {
    /// Refuses, whatever the options are.
    pub(crate) fn new<Options>(
        _: Options,
        _: Option<Arc<Wake>>,
    ) -> Result<Absent, UnavailableReason> {
        Err(UnavailableReason::NotThisSystem)
    }

    pub(crate) fn push(&mut self, _: usize, _: Request) -> Result<(), Request> {
        match *self {}
    }

    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn wait(&mut self) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn take(&mut self) -> Option<Finished> {
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
