//! Linux AIO, for direct reads and writes.

use std::io;
use std::sync::Arc;

use pipewright_os::base::wake::Wake;
use pipewright_os::disk::aio::Aio;
use pipewright_os::disk::file::{Action, Finished, Request};
use pipewright_os::disk::unavailable::WhyNot;

use super::Tell;
use super::mixed::Queue;
use super::witness::{Before, Witness};
use crate::class::Seen;

#[derive(Debug)]
pub(crate) struct AioQueue {
    aio: Aio,
    wake: Arc<Wake>,
}

impl AioQueue {
    pub(crate) fn new(depth: usize) -> Result<AioQueue, WhyNot> {
        let wake = Arc::new(Wake::new().map_err(|_| WhyNot::Limit)?);
        let aio = Aio::new(depth, Some(Arc::clone(&wake)))?;
        Ok(AioQueue { aio, wake })
    }
}

impl Queue for AioQueue {
    fn takes(&self, request: &Request) -> bool {
        // Everything else the kernel would do inside the call that hands it over.
        request.direct && matches!(request.action, Action::Read | Action::Write)
    }

    fn push(&mut self, token: usize, request: Request) -> Result<(), Request> {
        self.aio.push(token, request)
    }

    fn submit(&mut self) -> io::Result<()> {
        self.aio.submit()
    }

    fn seen(&self, _: usize, witness: &Witness, before: Before) -> Seen {
        witness.queued_since(before)
    }

    fn wait(&mut self) -> io::Result<()> {
        self.aio.wait()
    }

    fn take(&mut self) -> Option<Finished> {
        self.aio.take()
    }

    fn cancel(&mut self, _: usize) {
        // What the kernel has it finishes: its filesystems cancel nothing.
    }

    fn waker(&self) -> Tell {
        let wake = Arc::clone(&self.wake);
        Box::new(move || wake.raise())
    }
}
