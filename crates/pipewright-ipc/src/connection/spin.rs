//! Spins for a bounded time before a sleep, and adapts to the success of earlier spins.

use std::hint;
use std::time::{Duration, Instant};

use pipewright_os::base::cpu;

/// An adaptive spin with a bounded duration.
///
/// Each success earns credit, each failure costs some. Without credit there is no spin, except an occasional try while
/// waits are short: each failed try doubles the number of waits until the next. So spins cost next to nothing on a busy
/// machine, where the other side cannot run meanwhile, and two sides that wait only because the other one sleeps return
/// to spinning.
#[derive(Debug)]
pub(crate) struct Spin {
    most: Duration,
    credit: u32,
    /// The number of short waits until the next try.
    until_try: u32,
    /// The initial value of `until_try` after the previous failure.
    pause: u32,
}

const MAX_CREDIT: u32 = 8;
const FIRST_PAUSE: u32 = 8;
const LAST_PAUSE: u32 = 1024;

/// The longest wait that counts as short, as a multiple of the budget. Such a wait contains two wake-ups, which a spin
/// saves.
const SHORT: u32 = 4;

/// The number of checks of the condition between two reads of the clock.
const CHECKS: u32 = 32;

impl Spin {
    pub(crate) fn new(most: Duration) -> Spin {
        // On one processor the other side cannot run during a spin. (The affinity of this process does not matter: the
        // other process may have another one.)
        let most = if cpu::online() < 2 { Duration::ZERO } else { most };
        Spin { most, credit: MAX_CREDIT / 2, until_try: FIRST_PAUSE, pause: FIRST_PAUSE }
    }

    /// Spins until the condition is true or the budget is used up. Returns the duration as of the last read of
    /// the clock: a condition that comes true soon does not wait for another read.
    #[inline]
    pub(crate) fn until(&mut self, mut condition: impl FnMut() -> bool) -> Duration {
        let mut spun = Duration::ZERO;
        if self.credit == 0 || self.most.is_zero() {
            return spun;
        }
        let mut start = None;
        loop {
            for _ in 0..CHECKS {
                if condition() {
                    self.credit = (self.credit + 2).min(MAX_CREDIT);
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

    /// Records how long the wait after the spin slept.
    #[inline]
    pub(crate) fn note_sleep(&mut self, slept: Duration) {
        if slept > self.most * SHORT {
            // Too long for any spin: the next one would fail as well.
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

    /// Returns a spin that does not depend on the number of processors.
    fn spin(most: Duration) -> Spin {
        Spin { most, ..Spin::new(Duration::ZERO) }
    }

    /// Returns how many of these waits began with a spin, which always fails.
    fn tries(spin: &mut Spin, waits: u32, slept: Duration) -> u32 {
        let mut tries = 0;
        for _ in 0..waits {
            let mut spun = false;
            spin.until(|| {
                spun = true;
                false
            });
            tries += u32::from(spun);
            spin.note_sleep(slept);
        }
        tries
    }

    #[test]
    fn spin_that_never_succeeds_is_given_up_and_retried_rarely() {
        let mut spin = spin(BUDGET);
        let first = tries(&mut spin, 10, BUDGET);
        assert!(first <= MAX_CREDIT, "{first}");
        let then = tries(&mut spin, 10_000, BUDGET);
        assert!((5..40).contains(&then), "{then}");
        // Every spin succeeds from now on: after the next try each wait begins with one.
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
    fn long_waits_end_spinning() {
        let mut spin = spin(BUDGET);
        tries(&mut spin, 10, BUDGET * 1_000);
        assert_eq!(tries(&mut spin, 10_000, BUDGET * 1_000), 0);
    }

    #[test]
    fn zero_budget_never_spins() {
        let mut spin = spin(Duration::ZERO);
        for _ in 0..1_000 {
            assert_eq!(spin.until(|| unreachable!()), Duration::ZERO);
            spin.note_sleep(BUDGET);
        }
    }
}
