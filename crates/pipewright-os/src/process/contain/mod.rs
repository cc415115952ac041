//! Containment of a whole tree: everything that a child ever starts, whatever it does to escape.

#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(windows)]
pub(crate) mod windows;

use std::time::{Duration, Instant};

/// The longest wait; a process that takes longer is stuck in the kernel.
const LIMIT: Duration = Duration::from_secs(1);
/// The longest time between two looks at the clock.
const SLICE: Duration = Duration::from_millis(100);

/// The time that is left of a wait, which may consist of several loops.
///
/// A time in which this process could not look at the clock counts as [`SLICE`] at most. If the machine or the whole
/// group of processes was suspended, the processes that are waited for could not end either.
pub(crate) struct EndWait {
    left: Duration,
    last_look: Instant,
}

impl EndWait {
    pub(crate) fn new() -> EndWait {
        EndWait { left: LIMIT, last_look: Instant::now() }
    }

    /// Returns the limit on the next part of the wait, or `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        self.next_at(Instant::now())
    }

    fn next_at(&mut self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.last_look).min(SLICE);
        self.last_look = now;
        self.left = self.left.saturating_sub(passed);
        (!self.left.is_zero()).then_some(self.left.min(SLICE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspension_counts_as_one_slice() {
        let mut wait = EndWait::new();
        let mut now = wait.last_look;
        let mut parts = 0;
        while wait.next_at(now).is_some() {
            parts += 1;
            now += Duration::from_secs(3600);
        }
        assert_eq!(parts, 10);
    }

    #[test]
    fn short_looks_use_the_limit_up() {
        let mut wait = EndWait::new();
        let start = wait.last_look;
        assert_eq!(wait.next_at(start), Some(SLICE));
        let before_the_end = (1..=99).map(|part| start + part * LIMIT / 100);
        let last = before_the_end.map(|now| wait.next_at(now)).last();
        assert_eq!(last, Some(Some(LIMIT / 100)));
        assert_eq!(wait.next_at(start + LIMIT), None);
    }
}
