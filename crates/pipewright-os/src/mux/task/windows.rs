//! Not there yet: overlapped transfers that outlive a wait, and a port that tells of them.

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use super::super::Slot;

#[derive(Debug, Default)]
pub(super) struct Sources;

impl Sources {
    pub(super) fn is_empty(&self) -> bool {
        true
    }

    pub(super) fn look_at(&self) -> Option<Instant> {
        None
    }

    pub(super) fn poll_wait(
        &mut self,
        _: &mut Context<'_>,
        _: &mut [Slot<'_>],
    ) -> Poll<io::Result<usize>> {
        let words = "tasks cannot wait on Windows yet";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::Unsupported, words)))
    }
}
