//! Overlapped calls, for reads and writes.

use std::io;

use pipewright_os::disk::file::{Action, Finished, Request};
use pipewright_os::disk::iocp::Port;
use pipewright_os::disk::unavailable::WhyNot;

use super::Tell;
use super::mixed::Queue;
use super::witness::{Before, Witness};
use crate::class::Seen;

#[derive(Debug)]
pub(crate) struct OverlappedQueue(Port);

impl OverlappedQueue {
    pub(crate) fn new(depth: usize) -> Result<OverlappedQueue, WhyNot> {
        Port::new(depth).map(OverlappedQueue)
    }
}

impl Queue for OverlappedQueue {
    fn takes(&self, request: &Request) -> bool {
        matches!(request.action, Action::Read | Action::Write)
    }

    fn push(&mut self, token: usize, request: Request) -> Result<(), Request> {
        self.0.push(token, request)
    }

    fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    fn seen(&self, token: usize, _: &Witness, before: Before) -> Seen {
        Seen::Call { told: self.0.told(token), took: before.elapsed() }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.0.wait()
    }

    fn take(&mut self) -> Option<Finished> {
        self.0.take()
    }

    fn cancel(&mut self, token: usize) {
        self.0.cancel(token);
    }

    fn waker(&self) -> Tell {
        Box::new(self.0.waker())
    }
}
