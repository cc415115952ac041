//! Requests that are submitted one at a time, so that each call can be observed.

use std::collections::VecDeque;

use pipewright_os::disk::file::{FileRequest, FinishedRequest};

use super::call_monitor::CallMonitor;
use super::{cancelled, remove};
use crate::class::Observation;

/// The requests of a backend whose calls are observed, and the observations.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) monitor: CallMonitor,
    pushed: VecDeque<(usize, FileRequest)>,
    done: VecDeque<(FinishedRequest, Observation)>,
    /// The observation of each request in flight, by token.
    observations: Vec<Observation>,
}

impl Observed {
    pub(super) fn new(depth: usize, times: bool) -> Observed {
        Observed {
            monitor: CallMonitor::new(times),
            pushed: VecDeque::new(),
            done: VecDeque::new(),
            observations: vec![Observation::Nothing; depth],
        }
    }

    /// Takes a request for the next submit.
    pub(super) fn push(&mut self, token: usize, request: FileRequest) {
        self.record(token, Observation::Nothing);
        self.pushed.push_back((token, request));
    }

    /// Returns the next request to submit.
    pub(super) fn next(&mut self) -> Option<(usize, FileRequest)> {
        self.pushed.pop_front()
    }

    /// Returns true if all requests were submitted.
    pub(super) fn is_submitted(&self) -> bool {
        self.pushed.is_empty()
    }

    /// Puts back a request that the kernel did not accept.
    pub(super) fn put_back(&mut self, token: usize, request: FileRequest) {
        self.pushed.push_front((token, request));
    }

    /// Records the observation of a call.
    pub(super) fn record(&mut self, token: usize, observation: Observation) {
        if let Some(place) = self.observations.get_mut(token) {
            *place = observation;
        }
    }

    /// Returns the observation of the call that submitted a request.
    pub(super) fn observation(&self, token: usize) -> Observation {
        self.observations.get(token).copied().unwrap_or(Observation::Nothing)
    }

    /// Keeps a finished request until it is taken.
    pub(super) fn finish(&mut self, finished: FinishedRequest, observation: Observation) {
        self.done.push_back((finished, observation));
    }

    /// Takes a finished request.
    pub(super) fn take(&mut self) -> Option<(FinishedRequest, Observation)> {
        self.done.pop_front()
    }

    /// Returns true if a finished request can be taken.
    pub(super) fn has_finished(&self) -> bool {
        !self.done.is_empty()
    }

    /// Cancels a request that was not submitted yet. Returns false if it is not here.
    pub(super) fn cancel(&mut self, token: usize) -> bool {
        let Some(request) = remove(&mut self.pushed, token) else { return false };
        self.finish(cancelled(token, request), Observation::Nothing);
        true
    }
}
