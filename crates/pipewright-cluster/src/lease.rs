//! The lease of a worker: the time for which its host is known to count on it.
//!
//! A host that hears nothing of a node for [`SILENCE`] runs the node's jobs elsewhere. So the worker must have killed
//! them before. It sends a numbered beat twice a second, and the host names the number of each beat that arrives. The
//! lease runs for [`LEASE`] from the moment at which the last named beat was *sent*. The host counts from the moment at
//! which it arrived, which is later. So the worker is first, as long as the clocks of both machines run at the same
//! rate within 10 %: 4 s by a clock that is 10 % slow are 4.4 s, and 5 s by one that is 10 % fast are 4.5 s.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pipewright_batch::NODES_END_WITHIN;

/// The time between two beats.
pub(crate) const BEAT: Duration = Duration::from_millis(500);

/// The time without an answer after which a worker kills its jobs.
pub(crate) const LEASE: Duration = Duration::from_secs(4);

/// The time without any byte of a node after which its jobs run elsewhere.
pub(crate) const SILENCE: Duration = NODES_END_WITHIN;

/// The lease of a worker.
#[derive(Debug)]
pub(crate) struct Lease {
    state: Mutex<State>,
    ended: Condvar,
    interval: Duration,
    length: Duration,
}

#[derive(Debug)]
struct State {
    /// The number of the last beat.
    last: u64,
    next: Instant,
    /// Beats without an answer, and the times at which they were sent.
    sent: VecDeque<(u64, Instant)>,
    /// The time from which the lease runs.
    since: Instant,
    is_released: bool,
}

impl Lease {
    pub(crate) fn new(interval: Duration, length: Duration) -> Lease {
        let now = Instant::now();
        let state =
            State { last: 0, next: now, sent: VecDeque::new(), since: now, is_released: false };
        Lease { state: Mutex::new(state), ended: Condvar::new(), interval, length }
    }

    /// Returns the time of the next beat.
    pub(crate) fn next_beat(&self) -> Instant {
        self.state().next
    }

    /// Records a beat that is sent now, and returns its number.
    pub(crate) fn beat(&self, now: Instant) -> u64 {
        let mut state = self.state();
        state.last += 1;
        state.next = now + self.interval;
        let number = state.last;
        state.sent.push_back((number, now));
        number
    }

    /// Extends the lease: the host has named that beat. A number that was never sent extends nothing.
    pub(crate) fn seen(&self, number: u64) {
        let mut state = self.state();
        while let Some((beat, at)) = state.sent.front().copied().filter(|(beat, _)| *beat <= number)
        {
            state.sent.pop_front();
            if beat == number {
                state.since = at;
            }
        }
    }

    /// Returns the time until the lease runs out.
    pub(crate) fn left(&self) -> Duration {
        (self.state().since + self.length).saturating_duration_since(Instant::now())
    }

    /// Ends the wait of [`Self::wait_for_end`]: the connection ended in order.
    pub(crate) fn release(&self) {
        self.state().is_released = true;
        self.ended.notify_all();
    }

    /// Waits until the lease has run out. Returns false if it was released before.
    pub(crate) fn wait_for_end(&self) -> bool {
        let mut state = self.state();
        loop {
            let left = (state.since + self.length).saturating_duration_since(Instant::now());
            if state.is_released || left.is_zero() {
                return !state.is_released;
            }
            let waited = self.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_ends_before_the_host_counts_it_as_lost_whatever_the_rates_of_the_clocks() {
        let (slow, fast) = (LEASE.mul_f64(1.1), SILENCE.mul_f64(0.9));
        assert!(slow < fast);
    }

    #[test]
    fn the_lease_runs_from_the_time_at_which_the_named_beat_was_sent() {
        let lease = Lease::new(Duration::from_millis(1), Duration::from_secs(1000));
        let start = Instant::now();
        let numbers: Vec<u64> =
            (0..5).map(|beat| lease.beat(start + Duration::from_secs(beat))).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
        lease.seen(3);
        assert_eq!(lease.state().since, start + Duration::from_secs(2));
        // Neither an old answer nor a lie extends it.
        lease.seen(2);
        lease.seen(99);
        assert_eq!(lease.state().since, start + Duration::from_secs(2));
    }

    #[test]
    fn a_lease_without_answers_ends_and_a_released_one_does_not() {
        let lease = Lease::new(BEAT, Duration::from_millis(20));
        let start = Instant::now();
        assert!(lease.wait_for_end());
        assert!(start.elapsed() >= Duration::from_millis(20));
        let lease = Lease::new(BEAT, Duration::from_secs(1000));
        lease.release();
        assert!(!lease.wait_for_end());
    }
}
