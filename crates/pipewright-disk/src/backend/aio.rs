//! The queue of Linux AIO, for direct reads and writes.

use std::io;
use std::sync::Arc;

use pipewright_os::base::wake::Wake;
use pipewright_os::disk::aio::Aio;
use pipewright_os::disk::file::{Action, FileRequest, FinishedRequest};
use pipewright_os::disk::unavailable::UnavailableReason;

use super::WakeFn;
use super::call_monitor::{CallMonitor, Snapshot};
use super::mixed::KernelQueue;
use crate::class::Observation;

#[derive(Debug)]
pub(crate) struct AioQueue {
    aio: Aio,
    wake: Arc<Wake>,
}

impl AioQueue {
    pub(crate) fn new(depth: usize) -> Result<AioQueue, UnavailableReason> {
        let wake = Arc::new(Wake::new().map_err(|_| UnavailableReason::Limit)?);
        let aio = Aio::new(depth, Some(Arc::clone(&wake)))?;
        Ok(AioQueue { aio, wake })
    }
}

impl KernelQueue for AioQueue {
    fn takes(&self, request: &FileRequest) -> bool {
        // The kernel would perform everything else inside the submitting call.
        request.direct && matches!(request.action, Action::Read | Action::Write)
    }

    fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        self.aio.push(token, request)
    }

    fn submit(&mut self) -> io::Result<()> {
        self.aio.submit()
    }

    fn observe(&self, _: usize, monitor: &CallMonitor, before: Snapshot) -> Observation {
        monitor.observe_queued(before)
    }

    fn wait(&mut self) -> io::Result<()> {
        self.aio.wait()
    }

    fn take(&mut self) -> Option<FinishedRequest> {
        self.aio.take()
    }

    fn cancel(&mut self, _: usize) {
        // The kernel finishes what it has accepted: no filesystem can cancel.
    }

    fn waker(&self) -> WakeFn {
        let wake = Arc::clone(&self.wake);
        Box::new(move || wake.raise())
    }
}
