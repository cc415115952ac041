//! The number of jobs at one time, over the whole batch, in a bounded number of intervals.

use serde::Serialize;

/// The number of intervals. Two of them become one when the batch takes longer.
const INTERVALS: usize = 240;

/// The length of an interval at first.
const FIRST_SECONDS: f64 = 0.005;

/// Busy time in equal intervals from the start of the batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Busy {
    /// The length of an interval.
    pub(super) interval_seconds: f64,
    /// The sum of the times that attempts ran in each interval.
    pub(super) busy_seconds: Vec<f64>,
}

impl Default for Busy {
    fn default() -> Busy {
        Busy { interval_seconds: FIRST_SECONDS, busy_seconds: Vec::new() }
    }
}

impl Busy {
    /// Adds an attempt that ran in that time. Nothing is added for a time that is not finite or not positive.
    pub(super) fn add(&mut self, start: f64, seconds: f64) {
        let end = start + seconds;
        if !(start >= 0.0 && end > start && end.is_finite()) {
            return;
        }
        while end > self.interval_seconds * INTERVALS as f64 {
            self.halve();
        }
        // At most the number of intervals, by the loop above.
        let first = (start / self.interval_seconds) as usize;
        let last = ((end / self.interval_seconds) as usize).min(INTERVALS - 1);
        if self.busy_seconds.len() <= last {
            self.busy_seconds.resize(last + 1, 0.0);
        }
        for (index, busy) in self.busy_seconds.iter_mut().enumerate().take(last + 1).skip(first) {
            let from = index as f64 * self.interval_seconds;
            *busy += (end.min(from + self.interval_seconds) - start.max(from)).max(0.0);
        }
    }

    fn halve(&mut self) {
        self.interval_seconds *= 2.0;
        self.busy_seconds = self.busy_seconds.chunks(2).map(|pair| pair.iter().sum()).collect();
    }

    /// Returns the mean number of jobs at one time, for each interval with its start.
    pub(super) fn levels(&self) -> impl Iterator<Item = (f64, f64)> {
        let interval = self.interval_seconds;
        let busy = self.busy_seconds.iter().enumerate();
        busy.map(move |(index, busy)| (index as f64 * interval, busy / interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_is_exact_and_memory_is_bounded_however_long_it_takes() {
        let mut busy = Busy::default();
        let mut all = 0.0;
        for number in 0..20_000 {
            let (start, seconds) = (f64::from(number) * 0.7, f64::from(number % 50) / 10.0);
            busy.add(start, seconds);
            all += seconds;
        }
        busy.add(5.0, f64::INFINITY);
        busy.add(-1.0, 2.0);
        busy.add(f64::NAN, 1.0);
        assert!(busy.busy_seconds.len() <= INTERVALS);
        let sum: f64 = busy.busy_seconds.iter().sum();
        assert!((sum - all).abs() < 1e-3, "{sum} of {all}");
    }

    #[test]
    fn two_jobs_at_once_are_two() {
        let mut busy = Busy::default();
        busy.add(0.0, 1.0);
        busy.add(0.5, 0.5);
        let level = |at: f64| busy.levels().take_while(|(from, _)| *from <= at).last().unwrap().1;
        assert!((level(0.25) - 1.0).abs() < 1e-6);
        assert!((level(0.75) - 2.0).abs() < 1e-6);
    }
}
