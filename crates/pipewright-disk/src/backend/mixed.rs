//! A kernel queue for some operations (Linux AIO, or overlapped calls), and the thread pool for all others.

use std::sync::Arc;
use std::{fmt, io};

use pipewright_os::base::wake::Wake;
use pipewright_os::disk::aio::Aio;
use pipewright_os::disk::file::{Action, FileRequest, FinishedRequest};
use pipewright_os::disk::iocp::CompletionPort;
use pipewright_os::disk::unavailable::UnavailableReason;

use super::pool::PoolBackend;
use super::{Backend, CallMonitor, Observed, Snapshot, WakeFn};
use crate::class::Observation;

/// A kernel queue that accepts only some operations.
pub(crate) trait KernelQueue: fmt::Debug {
    /// Returns true if the queue accepts the request.
    fn takes(&self, request: &FileRequest) -> bool;

    /// Takes a request, as [`Backend::push`] does.
    fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest>;

    /// Submits, as [`Backend::submit`] does. `WouldBlock`: submit the rest once finished requests have been taken.
    fn submit(&mut self) -> io::Result<()>;

    /// Returns the observation of the request that was just submitted.
    fn observe(&self, token: usize, monitor: &CallMonitor, before: Snapshot) -> Observation;

    /// Waits, as [`Backend::wait`] does.
    fn wait(&mut self) -> io::Result<()>;

    /// Takes a finished request, if there is one. Doesn't wait.
    fn take(&mut self) -> Option<FinishedRequest>;

    /// Cancels a request, as [`Backend::cancel`] does. The request may belong to the pool.
    fn cancel(&mut self, token: usize);

    /// Returns a function that interrupts the current or next wait from another thread.
    fn waker(&self) -> WakeFn;
}

#[derive(Debug)]
pub(crate) struct MixedBackend<Q> {
    queue: Q,
    pool: PoolBackend,
    /// The number of operations in the queue and in the pool.
    in_queue: usize,
    in_pool: usize,
    /// The observed requests. `None` if classes were not requested.
    observed: Option<Observed>,
}

impl<Q: KernelQueue> MixedBackend<Q> {
    pub(crate) fn new(
        queue: Q,
        depth: usize,
        threads: usize,
        classes: bool,
        times: bool,
    ) -> MixedBackend<Q> {
        let mut pool = PoolBackend::new(threads, times);
        // Completions of the pool also end the wait for the queue.
        pool.set_on_finished(queue.waker());
        let observed = classes.then(|| Observed::new(depth, times));
        MixedBackend { queue, pool, in_queue: 0, in_pool: 0, observed }
    }
}

/// Submits one request at a time, so that the effect of each call is known.
fn submit_observed(observed: &mut Observed, queue: &mut impl KernelQueue) -> io::Result<()> {
    while let Some((token, request)) = observed.next() {
        let before = observed.monitor.snapshot();
        if let Err(request) = queue.push(token, request) {
            observed.put_back(token, request);
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // If the kernel has no room now, the queue keeps the request.
        queue.submit()?;
        let found = queue.observe(token, &observed.monitor, before);
        observed.record(token, found);
    }
    Ok(())
}

impl<Q: KernelQueue> Backend for MixedBackend<Q> {
    fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        if !self.queue.takes(&request) {
            self.in_pool += 1;
            return self.pool.push(token, request);
        }
        self.in_queue += 1;
        match &mut self.observed {
            Some(observed) => {
                observed.push(token, request);
                Ok(())
            }
            None => self.queue.push(token, request),
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        self.pool.submit()?;
        if let Some(observed) = &mut self.observed {
            submit_observed(observed, &mut self.queue)?;
        }
        self.queue.submit()
    }

    fn wait(&mut self) -> io::Result<()> {
        match self.submit() {
            // A full queue is a reason to wait, not an error.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        if self.observed.as_ref().is_some_and(Observed::has_finished) {
            Ok(())
        } else {
            self.queue.wait()
        }
    }

    fn take(&mut self) -> Option<(FinishedRequest, Observation)> {
        // The count spares the lock of a pool that has nothing to do.
        if self.in_pool > 0 {
            if let Some(done) = self.pool.take() {
                self.in_pool -= 1;
                return Some(done);
            }
        }
        if self.in_queue == 0 {
            return None;
        }
        let ended = self.observed.as_mut().and_then(Observed::take);
        let ended = ended.or_else(|| {
            let finished = self.queue.take()?;
            let observed = self.observed.as_ref();
            let observation =
                observed.map_or(Observation::Nothing, |it| it.observation(finished.token));
            Some((finished, observation))
        });
        self.in_queue -= usize::from(ended.is_some());
        ended
    }

    fn cancel(&mut self, token: usize) {
        if self.observed.as_mut().is_some_and(|observed| observed.cancel(token)) {
            return;
        }
        if self.in_pool > 0 {
            self.pool.cancel(token);
        }
        self.queue.cancel(token);
    }

    fn waker(&self) -> Option<WakeFn> {
        Some(self.queue.waker())
    }
}

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
