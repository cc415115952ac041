//! Systems that have no such asynchronous I/O: nothing of the kind can ever be made.

use std::io;
use std::sync::Arc;

use crate::file::{Finished, Request};
use crate::ring::RingOptions;
use crate::wake::Wake;
use crate::why_not::WhyNot;

/// There is none.
#[derive(Debug)]
pub(crate) enum Ring {}

/// There is none.
pub(crate) type Aio = Ring;

impl Ring {
    pub(crate) fn new(_: RingOptions, _: Option<Arc<Wake>>) -> Result<Ring, WhyNot> {
        Err(WhyNot::NotThisSystem)
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
}
