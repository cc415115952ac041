//! No such descriptor on this system.

use std::io;
use std::time::Instant;

use super::Slot;

/// A descriptor that is never made.
#[derive(Debug)]
pub(super) enum Descriptor {}

impl Descriptor {
    pub(super) fn new() -> io::Result<Descriptor> {
        let words = "this system has no descriptor for a whole wait";
        Err(io::Error::new(io::ErrorKind::Unsupported, words))
    }

    pub(super) fn number(&self) -> i32 {
        match *self {}
    }

    pub(super) fn update(&mut self, _: &[Slot<'_>], _: Option<Instant>) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn register(
        &mut self,
        _: &[Slot<'_>],
        _: Option<Instant>,
    ) -> io::Result<Option<Instant>> {
        match *self {}
    }
}
