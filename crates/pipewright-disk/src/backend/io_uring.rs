//! The io_uring backend. Submits one operation at a time if callers ask for classes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pipewright_os::base::wake::Wake;
use pipewright_os::disk::file::{FileRequest, FinishedRequest};
use pipewright_os::disk::io_uring::{RingOptions, Uring};
use pipewright_os::disk::unavailable::UnavailableReason;

use super::{Backend, Observed, WakeFn};
use crate::class::Observation;

/// The number of requests that are submitted without an explicit submit. The disk starts on them while the
/// next are prepared, so it isn't idle in between. A larger number would save calls; see docs/benchmarks.md.
const EARLY: usize = 4;

#[derive(Debug)]
pub(crate) struct UringBackend {
    ring: Uring,
    /// The number of requests pushed since the last submit.
    unsubmitted: usize,
    /// The flag that interrupts a wait. `None` if no other thread can.
    wake: Option<Arc<Wake>>,
    /// The observed requests. `None` if classes were not requested.
    observed: Option<Observed>,
    /// The tokens of requests that callers have cancelled.
    cancelled: Vec<usize>,
}

impl UringBackend {
    pub(crate) fn new(
        options: RingOptions,
        classes: bool,
        times: bool,
        wake: Option<Arc<Wake>>,
    ) -> Result<UringBackend, UnavailableReason> {
        let ring = Uring::new(options, wake.clone())?;
        let observed = classes.then(|| Observed::new(options.depth, times));
        Ok(UringBackend { ring, unsubmitted: 0, wake, observed, cancelled: Vec::new() })
    }
}

/// Takes a finished request from the ring. The kernel cancels what it has no thread for (`pids.max`, `RLIMIT_NPROC`),
/// and nobody asked for that: such a request is performed here, and returned with true.
fn take_finished(ring: &mut Uring, cancelled: &mut Vec<usize>) -> Option<(FinishedRequest, bool)> {
    let mut finished = ring.take()?;
    let place = cancelled.iter().position(|token| *token == finished.token);
    let is_asked_for = place.map(|place| cancelled.swap_remove(place)).is_some();
    if finished.ran || is_asked_for {
        return Some((finished, false));
    }
    finished.result = finished.request.perform();
    finished.ran = true;
    Some((finished, true))
}

/// The observation of a request that the caller performed in the end: it may have waited for the disk.
const PERFORMED_HERE: Observation =
    Observation::Inline { slept: true, took: Duration::ZERO, device_bytes: None };

/// Submits one request at a time: a request that is done when the call returns was done inside it.
fn submit_observed(
    observed: &mut Observed,
    ring: &mut Uring,
    cancelled: &mut Vec<usize>,
) -> io::Result<()> {
    if observed.is_submitted() {
        return Ok(());
    }
    let mut before = observed.monitor.snapshot();
    while let Some((token, request)) = observed.next() {
        if let Err(request) = ring.push(token, request) {
            observed.put_back(token, request);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        before = observed.monitor.restart(before);
        ring.submit()?;
        let (found, after) = observed.monitor.observe_submitted(before);
        observed.record(token, found);
        // The snapshot after one call serves the next: nothing in between can sleep.
        before = after;
        while let Some((finished, is_performed_here)) = take_finished(ring, cancelled) {
            let observation = match observed.observation(finished.token) {
                _ if is_performed_here => PERFORMED_HERE,
                Observation::Kernel { slept, took, device_bytes } if finished.token == token => {
                    Observation::Inline { slept, took, device_bytes }
                }
                other => other,
            };
            observed.finish(finished, observation);
        }
    }
    Ok(())
}

impl Backend for UringBackend {
    fn push(&mut self, token: usize, request: FileRequest) -> Result<(), FileRequest> {
        if let Some(observed) = &mut self.observed {
            observed.push(token, request);
            return Ok(());
        }
        self.ring.push(token, request)?;
        self.unsubmitted += 1;
        if self.unsubmitted >= EARLY {
            self.unsubmitted = 0;
            // Ignored: requests that were not submitted stay pushed, and the next call reports the error.
            let _ = self.ring.submit();
        }
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.unsubmitted = 0;
        match &mut self.observed {
            Some(observed) => submit_observed(observed, &mut self.ring, &mut self.cancelled),
            None => self.ring.submit(),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.unsubmitted = 0;
        if let Some(observed) = &mut self.observed {
            submit_observed(observed, &mut self.ring, &mut self.cancelled)?;
            if observed.has_finished() {
                return Ok(());
            }
        }
        self.ring.wait()
    }

    fn take(&mut self) -> Option<(FinishedRequest, Observation)> {
        if let Some(done) = self.observed.as_mut().and_then(Observed::take) {
            // A cancel that came too late is not one of the next request with this token.
            self.cancelled.retain(|token| *token != done.0.token);
            return Some(done);
        }
        let (finished, is_performed_here) = take_finished(&mut self.ring, &mut self.cancelled)?;
        let observation = match &self.observed {
            Some(_) if is_performed_here => PERFORMED_HERE,
            Some(observed) => observed.observation(finished.token),
            None => Observation::Nothing,
        };
        Some((finished, observation))
    }

    fn cancel(&mut self, token: usize) {
        if !self.observed.as_mut().is_some_and(|observed| observed.cancel(token)) {
            self.cancelled.push(token);
            self.ring.cancel(token);
        }
    }

    fn waker(&self) -> Option<WakeFn> {
        let wake = Arc::clone(self.wake.as_ref()?);
        Some(Box::new(move || wake.raise()))
    }
}
