//! The time that a benchmark may take.
//!
//! A cell takes longer than its own time: it is set up, warmed up, and cleaned up. By how much depends on the machine
//! and on what else runs there. So the time for the next cell is calculated again and again, from what the cells before it
//! took.

use std::time::Duration;

/// The smallest part of its time that a cell gets.
const SMALLEST_SHARE: f64 = 0.125;

/// The time for all cells of all series, as it is used up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// The time for the benchmark; `None`: as long as it takes.
    limit: Option<Duration>,
    /// The sum of the times of cells that show how slow the others are.
    sample: Duration,
    /// The sum of the times of the cells that are not yet measured.
    left: Duration,
    /// The sum of the times of the measured cells, as they were shortened.
    used: Duration,
    shortest: f64,
}

impl Budget {
    /// Creates a budget for so many series of cells whose times have that sum in each.
    pub(crate) fn new(limit: Option<Duration>, cells: Duration, series: u32) -> Budget {
        // Single cells may be slow, and the first ones also pay for what all share, such as a file.
        let sample = cells / 2;
        let left = cells.saturating_mul(series);
        Budget { limit, sample, left, used: Duration::ZERO, shortest: 1.0 }
    }

    /// Returns the time for the next cell, which should be measured for `time`, that long after the start.
    pub(crate) fn next(&mut self, time: Duration, elapsed: Duration) -> Duration {
        let share = self.share(elapsed);
        self.left = self.left.saturating_sub(time);
        let shortened = time.mul_f64(share);
        self.used += shortened;
        self.shortest = self.shortest.min(share);
        shortened
    }

    /// Returns true if no time is left.
    pub(crate) fn is_over(&self, elapsed: Duration) -> bool {
        self.limit.is_some_and(|limit| elapsed >= limit)
    }

    /// Returns the smallest part of its time that a cell got.
    pub(crate) fn shortest_share(&self) -> f64 {
        self.shortest
    }

    fn share(&self, elapsed: Duration) -> f64 {
        let Some(limit) = self.limit else { return 1.0 };
        if self.used < self.sample || self.used.is_zero() || self.left.is_zero() {
            return 1.0;
        }
        // As slow as the cells so far, the others take this long.
        let slowness = elapsed.as_secs_f64() / self.used.as_secs_f64();
        let expected = slowness * self.left.as_secs_f64();
        let remaining = limit.saturating_sub(elapsed).as_secs_f64();
        (remaining / expected.max(f64::MIN_POSITIVE)).clamp(SMALLEST_SHARE, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Duration = Duration::from_millis(100);

    /// Measures 100 cells that take that long beyond their time, and returns the whole time in seconds.
    fn run(limit: Option<u64>, beyond: Duration) -> (f64, Budget) {
        let mut budget = Budget::new(limit.map(Duration::from_secs), 25 * CELL, 4);
        let mut elapsed = Duration::ZERO;
        for _ in 0..100 {
            elapsed += budget.next(CELL, elapsed) + beyond;
        }
        (elapsed.as_secs_f64(), budget)
    }

    #[test]
    fn cells_have_their_time_if_all_fit() {
        let (seconds, budget) = run(Some(20), CELL / 2);
        assert!((seconds - 15.0).abs() < 1e-6, "{seconds}");
        assert!(budget.shortest_share() >= 1.0);
    }

    #[test]
    fn cells_are_shortened_until_all_fit() {
        let (seconds, budget) = run(Some(12), CELL / 2);
        assert!(seconds < 12.2, "{seconds}");
        assert!(budget.shortest_share() < 1.0);
    }

    #[test]
    fn a_slow_beginning_shortens_nothing_if_all_fit() {
        let mut budget = Budget::new(Some(Duration::from_secs(20)), 25 * CELL, 4);
        let mut elapsed = Duration::from_secs(1);
        for _ in 0..100 {
            elapsed += budget.next(CELL, elapsed);
        }
        assert!(budget.shortest_share() >= 1.0, "{}", budget.shortest_share());
    }

    #[test]
    fn a_slow_cell_shortens_no_others_if_all_fit() {
        let mut budget = Budget::new(Some(Duration::from_secs(30)), 50 * CELL, 2);
        let mut elapsed = Duration::ZERO;
        for number in 0..100 {
            let slow = if number % 50 == 31 { 50 * CELL } else { Duration::ZERO };
            elapsed += budget.next(CELL, elapsed) + slow;
        }
        assert!(elapsed < Duration::from_secs(30));
        assert!(budget.shortest_share() >= 1.0, "{}", budget.shortest_share());
    }

    #[test]
    fn a_cell_keeps_an_eighth_of_its_time() {
        let (seconds, budget) = run(Some(12), 3 * CELL);
        assert!(seconds > 30.0, "{seconds}");
        assert!(budget.shortest_share() >= SMALLEST_SHARE);
        assert!(budget.is_over(Duration::from_secs(12)));
    }

    #[test]
    fn without_a_limit_cells_take_as_long_as_they_take() {
        let (seconds, budget) = run(None, 3 * CELL);
        assert!((seconds - 40.0).abs() < 1e-6, "{seconds}");
        assert!(!budget.is_over(Duration::MAX));
    }
}
