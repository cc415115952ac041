//! Looks for a bounded time before it sleeps, and learns whether that pays.

use std::hint;
use std::time::{Duration, Instant};

use pipewright_os::base::cpu;

/// Whether to look, and how long at most.
///
/// Every success earns credit and every failure costs some. Without credit nobody looks, but for a try
/// now and then while waits are short: each try in vain doubles the number of waits until the next. So a
/// busy machine, where the other side cannot run while we look, loses next to nothing; and two sides
/// that both sleep, and make each other wait by that, find out of it.
#[derive(Debug)]
pub(crate) struct Spin {
    most: Duration,
    credit: u32,
    /// Short waits until it is tried again.
    until_try: u32,
    /// How many that were the last time.
    pause: u32,
}

const MOST_CREDIT: u32 = 8;
const FIRST_PAUSE: u32 = 8;
const LAST_PAUSE: u32 = 1024;

/// A wait that took so many times the budget is short: two wake-ups are in it, which looking saves.
const SHORT: u32 = 4;

/// Looks between two looks at the clock.
const LOOKS: u32 = 32;

impl Spin {
    pub(crate) fn new(most: Duration) -> Spin {
        // With one processor nobody can do anything while we look. (That this process may use one alone
        // says nothing: the other one may have another.)
        let most = if cpu::online() < 2 { Duration::ZERO } else { most };
        Spin { most, credit: MOST_CREDIT / 2, until_try: FIRST_PAUSE, pause: FIRST_PAUSE }
    }

    /// Looks until the fact has come or the budget is used up. How long that took when the clock was
    /// looked at last: what comes soon is not kept waiting for that.
    #[inline]
    pub(crate) fn until(&mut self, mut fact: impl FnMut() -> bool) -> Duration {
        let mut spun = Duration::ZERO;
        if self.credit == 0 || self.most.is_zero() {
            return spun;
        }
        let mut start = None;
        loop {
            for _ in 0..LOOKS {
                if fact() {
                    self.credit = (self.credit + 2).min(MOST_CREDIT);
                    self.pause = FIRST_PAUSE;
                    return spun;
                }
                hint::spin_loop();
            }
            spun = start.get_or_insert_with(Instant::now).elapsed();
            if spun >= self.most {
                self.note_failure();
                return spun;
            }
        }
    }

    fn note_failure(&mut self) {
        self.credit -= 1;
        if self.credit == 0 {
            self.pause = (self.pause * 2).min(LAST_PAUSE);
            self.until_try = self.pause;
        }
    }

    /// Notes how long was waited in the end, without looking.
    #[inline]
    pub(crate) fn note_sleep(&mut self, slept: Duration) {
        if slept > self.most * SHORT {
            // Far from it: another try in vain would cost as much.
            self.credit = self.credit.saturating_sub(1);
            return;
        }
        if self.credit == 0 {
            self.until_try = self.until_try.saturating_sub(1);
            if self.until_try == 0 {
                self.credit = 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_micros(5);

    /// One that does not depend on how many processors this machine has.
    fn spin(most: Duration) -> Spin {
        Spin { most, ..Spin::new(Duration::ZERO) }
    }

    /// How many of so many waits in vain were begun with a look, where every wait takes so long.
    fn tries(spin: &mut Spin, waits: u32, slept: Duration) -> u32 {
        let mut tries = 0;
        for _ in 0..waits {
            let mut looked = false;
            spin.until(|| {
                looked = true;
                false
            });
            tries += u32::from(looked);
            spin.note_sleep(slept);
        }
        tries
    }

    #[test]
    fn what_never_pays_is_given_up_and_tried_again_now_and_then() {
        let mut spin = spin(BUDGET);
        let first = tries(&mut spin, 10, BUDGET);
        assert!(first <= MOST_CREDIT, "{first}");
        let then = tries(&mut spin, 10_000, BUDGET);
        assert!((5..40).contains(&then), "{then}");
        // It pays from now on: after the next try it is looked every time.
        let mut found = 0;
        for _ in 0..3_000 {
            spin.until(|| {
                found += 1;
                true
            });
            spin.note_sleep(BUDGET);
        }
        assert!(found > 1_000, "{found}");
    }

    #[test]
    fn who_waits_long_does_not_look() {
        let mut spin = spin(BUDGET);
        tries(&mut spin, 10, BUDGET * 1_000);
        assert_eq!(tries(&mut spin, 10_000, BUDGET * 1_000), 0);
    }

    #[test]
    fn without_a_budget_nobody_looks() {
        let mut spin = spin(Duration::ZERO);
        for _ in 0..1_000 {
            assert_eq!(spin.until(|| unreachable!()), Duration::ZERO);
            spin.note_sleep(BUDGET);
        }
    }
}
