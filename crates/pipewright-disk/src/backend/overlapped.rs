//! The queue of overlapped calls, for reads and writes.

use std::io;

use pipewright_os::disk::file::{Action, FileRequest, FinishedRequest};
use pipewright_os::disk::iocp::CompletionPort;
use pipewright_os::disk::unavailable::UnavailableReason;

use super::WakeFn;
use super::call_monitor::{CallMonitor, Snapshot};
use super::mixed::KernelQueue;
use crate::class::Observation;

#[derive(Debug)]
pub(crate) struct OverlappedQueue(CompletionPort);

impl OverlappedQueue {
    pub(crate) fn new(depth: usize) -> Result<OverlappedQueue, UnavailableReason> {
        CompletionPort::new(depth).map(OverlappedQueue)
    }
}

impl KernelQueue for OverlappedQueue {
    fn takes(&self, request: &FileRequest) -> bool {
        matches!(request.action, Action::Read | Action::Write)
    }

    fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        self.0.push(token, request)
    }

    fn submit(&mut self) -> io::Result<()> {
        self.0.submit()
    }

    fn observe(&self, token: usize, _: &CallMonitor, before: Snapshot) -> Observation {
        Observation::Call { status: self.0.call_status(token), took: before.elapsed() }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.0.wait()
    }

    fn take(&mut self) -> Option<FinishedRequest> {
        self.0.take()
    }

    fn cancel(&mut self, token: usize) {
        self.0.cancel(token);
    }

    fn waker(&self) -> WakeFn {
        Box::new(self.0.waker())
    }
}
