//! Looks for a bounded time before it sleeps, and learns whether that pays.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// How long to look. Doubled when what was looked for came in time, halved when it did not; from nothing
/// it is tried again now and then.
#[derive(Debug)]
pub(crate) struct Spin {
    most: Duration,
    now: Duration,
    /// Waits since the budget became nothing.
    idle: u32,
}

/// Less than this is nothing: a call of the system takes as long.
const LEAST: Duration = Duration::from_micros(1);

/// After so many waits without looking it is tried again.
const RETRY: u32 = 64;

/// Looks between two looks at the clock.
const LOOKS: u32 = 32;

impl Spin {
    pub(crate) fn new(most: Duration) -> Spin {
        // With one processor nobody can do anything while we look.
        let alone = thread::available_parallelism().is_ok_and(|count| count.get() < 2);
        let most = if alone { Duration::ZERO } else { most };
        Spin { most, now: most, idle: 0 }
    }

    /// Looks until the fact has come or the budget is used up. How long that took.
    #[inline]
    pub(crate) fn until(&mut self, mut fact: impl FnMut() -> bool) -> Duration {
        if self.now.is_zero() && !self.try_again() {
            return Duration::ZERO;
        }
        let start = Instant::now();
        let mut spun;
        loop {
            for _ in 0..LOOKS {
                if fact() {
                    self.now = (self.now * 2).clamp(LEAST, self.most.max(LEAST));
                    return start.elapsed();
                }
                hint::spin_loop();
            }
            spun = start.elapsed();
            if spun >= self.now {
                break;
            }
        }
        self.now = if self.now / 2 < LEAST { Duration::ZERO } else { self.now / 2 };
        spun
    }

    fn try_again(&mut self) -> bool {
        if self.most.is_zero() {
            return false;
        }
        self.idle += 1;
        if self.idle < RETRY {
            return false;
        }
        self.idle = 0;
        self.now = (self.most / 4).max(LEAST);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A budget that does not depend on how many processors this machine has.
    fn spin(most: Duration) -> Spin {
        Spin { most, now: most, idle: 0 }
    }

    #[test]
    fn what_never_pays_is_given_up_and_tried_again_now_and_then() {
        let mut spin = spin(Duration::from_micros(64));
        for _ in 0..16 {
            spin.until(|| false);
        }
        assert_eq!(spin.now, Duration::ZERO);
        let mut looks = 0;
        for _ in 0..RETRY {
            spin.until(|| {
                looks += 1;
                true
            });
        }
        assert_eq!(looks, 1);
        assert!(spin.now > Duration::ZERO);
        for _ in 0..16 {
            spin.until(|| true);
        }
        assert_eq!(spin.now, spin.most);
    }

    #[test]
    fn without_a_budget_nobody_looks() {
        let mut spin = spin(Duration::ZERO);
        for _ in 0..3 * RETRY {
            assert_eq!(spin.until(|| unreachable!()), Duration::ZERO);
        }
    }
}
