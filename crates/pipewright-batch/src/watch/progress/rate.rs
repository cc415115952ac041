//! The rate of the last half minute, and the time that is left at that rate.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time that a rate covers.
const WINDOW: Duration = Duration::from_secs(30);

/// The shortest time between two samples, so that there are few.
const SAMPLE: Duration = Duration::from_secs(1);

/// Ends that a window needs. With fewer, the rate is that of the whole run.
const LEAST_ENDS: u64 = 5;

/// The number of ended jobs over time. Jobs of an earlier run do not count.
#[derive(Debug)]
pub(super) struct Rate {
    started: Instant,
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Rate {
        Rate { started: now, samples: VecDeque::from([(now, 0)]) }
    }

    /// Records the number of jobs that have ended by now.
    pub(super) fn record(&mut self, now: Instant, ended: u64) {
        let is_due =
            self.samples.back().is_none_or(|(last, _)| now.duration_since(*last) >= SAMPLE);
        if is_due {
            self.samples.push_back((now, ended));
        }
        // The first one is as old as the window, or a little older.
        while self.samples.get(1).is_some_and(|(next, _)| now.duration_since(*next) >= WINDOW) {
            self.samples.pop_front();
        }
    }

    /// Returns the jobs that end in a second; `None` if none has ended.
    pub(super) fn per_second(&self, now: Instant, ended: u64) -> Option<f64> {
        let over = |from: Instant, count: u64| {
            let seconds = now.duration_since(from).as_secs_f64();
            (count > 0 && seconds > 0.0).then(|| count as f64 / seconds)
        };
        let (from, before) = self.samples.front().copied().unwrap_or((self.started, 0));
        match ended.saturating_sub(before) {
            recent if recent >= LEAST_ENDS => over(from, recent),
            _ => over(self.started, ended),
        }
    }

    /// Returns the time that this number of jobs takes.
    pub(super) fn left(&self, now: Instant, ended: u64, waiting: u64) -> Option<Duration> {
        let seconds = waiting as f64 / self.per_second(now, ended)?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}
