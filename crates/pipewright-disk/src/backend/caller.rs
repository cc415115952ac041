//! The backend that performs everything on the calling thread, by plain synchronous calls.

use std::collections::VecDeque;
use std::io;

use pipewright_os::disk::file::{FileRequest, FinishedRequest};

use super::call_monitor::CallMonitor;
use super::{Backend, WakeFn, cancelled, remove};
use crate::class::Observation;

#[derive(Debug)]
pub(crate) struct CallerBackend {
    pushed: VecDeque<(usize, FileRequest)>,
    done: VecDeque<(FinishedRequest, Observation)>,
    monitor: Option<CallMonitor>,
}

impl CallerBackend {
    pub(crate) fn new(classes: bool, times: bool) -> CallerBackend {
        let monitor = classes.then(|| CallMonitor::new(times));
        CallerBackend { pushed: VecDeque::new(), done: VecDeque::new(), monitor }
    }
}

impl Backend for CallerBackend {
    fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        self.pushed.push_back((token, request));
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        while let Some((token, mut request)) = self.pushed.pop_front() {
            let before = self.monitor.as_ref().map(CallMonitor::snapshot);
            let result = request.perform();
            let observation = match (&self.monitor, before) {
                (Some(monitor), Some(before)) => monitor.observe_inline(before),
                _ => Observation::Nothing,
            };
            let finished = FinishedRequest { token, request, result, ran: true };
            self.done.push_back((finished, observation));
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.submit()
    }

    fn take(&mut self) -> Option<(FinishedRequest, Observation)> {
        self.done.pop_front()
    }

    fn cancel(&mut self, token: usize) {
        if let Some(request) = remove(&mut self.pushed, token) {
            self.done.push_back((cancelled(token, request), Observation::Nothing));
        }
    }

    fn waker(&self) -> Option<WakeFn> {
        None
    }
}
