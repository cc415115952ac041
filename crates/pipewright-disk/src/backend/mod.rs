//! The backends, which perform operations behind one trait, and the observation of their calls.

mod io_uring;
mod mixed;
mod pool;

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use std::{fmt, io};

use pipewright_os::disk::file::{FileRequest, FinishedRequest};
use pipewright_os::disk::thread_usage::{self, ThreadUsage};

use crate::class::Observation;

pub(crate) use io_uring::UringBackend;
pub(crate) use mixed::{AioQueue, MixedBackend, OverlappedQueue};
pub(crate) use pool::{CallerBackend, PoolBackend};

/// A function that interrupts a wait from another thread.
pub(crate) type WakeFn = Box<dyn Fn() + Send + Sync>;

/// A mechanism that performs requests. It owns each request until it returns it, which it always does.
pub(crate) trait Backend: fmt::Debug {
    /// Takes a request for the next [`submit`](Backend::submit). The token is less than the depth and not in
    /// use.
    fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest>;

    /// Submits the pushed requests. Those that are not accepted stay pushed.
    fn submit(&mut self) -> io::Result<()>;

    /// Waits until a request is finished or another thread interrupts the wait. Can return early.
    fn wait(&mut self) -> io::Result<()>;

    /// Takes a finished request, if there is one. Doesn't wait.
    fn take(&mut self) -> Option<(FinishedRequest, Observation)>;

    /// Cancels a request that has not started. Every request finishes, cancelled or not.
    fn cancel(&mut self, token: usize);

    /// Returns a function that interrupts the current or next wait. `None` if the calling thread does the work
    /// itself.
    fn waker(&self) -> Option<WakeFn>;
}

/// Removes a request that has not started.
fn remove(queue: &mut VecDeque<(usize, FileRequest)>, token: usize) -> Option<FileRequest> {
    let place = queue.iter().position(|(other, _)| *other == token)?;
    queue.remove(place).map(|(_, request)| request)
}

/// Finishes a request that has not started.
fn cancelled(token: usize, request: FileRequest) -> FinishedRequest {
    let result = Err(pipewright_os::base::error::cancelled());
    FinishedRequest { token, request, result, ran: false }
}

/// The requests of a backend whose calls are observed, and the observations.
#[derive(Debug)]
struct Observed {
    monitor: CallMonitor,
    pushed: VecDeque<(usize, FileRequest)>,
    done: VecDeque<(FinishedRequest, Observation)>,
    /// The observation of each request in flight, by token.
    observations: Vec<Observation>,
}

impl Observed {
    fn new(depth: usize, times: bool) -> Observed {
        Observed {
            monitor: CallMonitor::new(times),
            pushed: VecDeque::new(),
            done: VecDeque::new(),
            observations: vec![Observation::Nothing; depth],
        }
    }

    /// Takes a request for the next submit.
    fn push(&mut self, token: usize, request: FileRequest) {
        self.record(token, Observation::Nothing);
        self.pushed.push_back((token, request));
    }

    /// Returns the next request to submit.
    fn next(&mut self) -> Option<(usize, FileRequest)> {
        self.pushed.pop_front()
    }

    /// Returns true if all requests were submitted.
    fn is_submitted(&self) -> bool {
        self.pushed.is_empty()
    }

    /// Puts back a request that the kernel did not accept.
    fn put_back(&mut self, token: usize, request: FileRequest) {
        self.pushed.push_front((token, request));
    }

    /// Records the observation of a call.
    fn record(&mut self, token: usize, observation: Observation) {
        if let Some(place) = self.observations.get_mut(token) {
            *place = observation;
        }
    }

    /// Returns the observation of the call that submitted a request.
    fn observation(&self, token: usize) -> Observation {
        self.observations.get(token).copied().unwrap_or(Observation::Nothing)
    }

    /// Keeps a finished request until it is taken.
    fn finish(&mut self, finished: FinishedRequest, observation: Observation) {
        self.done.push_back((finished, observation));
    }

    fn take(&mut self) -> Option<(FinishedRequest, Observation)> {
        self.done.pop_front()
    }

    /// Returns true if a finished request can be taken.
    fn has_finished(&self) -> bool {
        !self.done.is_empty()
    }

    /// Cancels a request that was not submitted yet. Returns false if it is not here.
    fn cancel(&mut self, token: usize) -> bool {
        let Some(request) = remove(&mut self.pushed, token) else { return false };
        self.finish(cancelled(token, request), Observation::Nothing);
        true
    }
}

/// Takes snapshots of the calling thread before and after a call.
#[derive(Debug)]
pub(crate) struct CallMonitor {
    counts_disk_bytes: bool,
    /// True if the durations of calls were requested.
    times: bool,
}

/// The state of the thread before a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot {
    usage: Option<ThreadUsage>,
    began: Option<Instant>,
}

impl Snapshot {
    /// Returns the duration of the call, or zero if it was not requested.
    pub(crate) fn elapsed(self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }
}

impl CallMonitor {
    pub(crate) fn new(times: bool) -> CallMonitor {
        CallMonitor { counts_disk_bytes: thread_usage::counts_disk_bytes(), times }
    }

    /// Takes a snapshot before a call.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.restart(Snapshot { usage: thread_usage::now(), began: None })
    }

    /// Reuses a snapshot for a call that starts now.
    pub(crate) fn restart(&self, before: Snapshot) -> Snapshot {
        // Taken last, so that the snapshot itself isn't counted.
        Snapshot { began: self.times.then(Instant::now), ..before }
    }

    /// Returns the observation of a call that performed the operation.
    pub(crate) fn observe_inline(&self, before: Snapshot) -> Observation {
        let took = before.elapsed();
        match before.usage.zip(thread_usage::now()) {
            Some((then, now)) => {
                Observation::Inline { slept: now.sleeps != then.sleeps, took, device_bytes: None }
            }
            None => Observation::Nothing,
        }
    }

    /// Returns the observation of a call that submitted the operation, and a snapshot for the next call.
    pub(crate) fn observe_submitted(&self, before: Snapshot) -> (Observation, Snapshot) {
        let took = before.elapsed();
        let now = thread_usage::now();
        let observation = match before.usage.zip(now) {
            Some((then, now)) => {
                let bytes = now.disk_bytes.saturating_sub(then.disk_bytes);
                let device_bytes = self.counts_disk_bytes.then_some(bytes);
                Observation::Kernel { slept: now.sleeps != then.sleeps, took, device_bytes }
            }
            None => Observation::Nothing,
        };
        (observation, Snapshot { usage: now, began: None })
    }

    /// Returns the observation of a call that submitted the operation to a queue without threads.
    pub(crate) fn observe_queued(&self, before: Snapshot) -> Observation {
        match self.observe_inline(before) {
            Observation::Inline { slept, took, .. } => Observation::Queue { slept, took },
            other => other,
        }
    }
}
