//! The starts that are under way. Until one is over, its child may hold a copy of each handle of this process.
//!
//! A new process gets a copy of all handles, and closes those that it does not inherit before it executes its program. Until then it
//! holds the pipes of other threads open, and their children seem to have left somebody behind. The time is short, but has no
//! limit on a busy machine. So the thread waits for a fact: the starts that were under way are over.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use super::imp;
use crate::base::generation::PerProcess;

/// The starts of a process, counted by the epoch in which they began. The next epoch begins once none of the epoch before is
/// left: after two of them, all that were under way are over.
struct Starts {
    epoch: AtomicU64,
    counts: [AtomicUsize; 2],
}

/// A fork has none: the threads that have begun them are not there.
static STARTS: PerProcess<Starts> = PerProcess::new(Starts::new);

impl Starts {
    const fn new() -> Starts {
        Starts { epoch: AtomicU64::new(0), counts: [const { AtomicUsize::new(0) }; 2] }
    }

    fn count(&self, epoch: u64) -> &AtomicUsize {
        &self.counts[usize::from(epoch % 2 == 1)]
    }

    fn begin(&self) -> UnderWay<'_> {
        loop {
            let epoch = self.epoch.load(SeqCst);
            let count = self.count(epoch);
            count.fetch_add(1, SeqCst);
            let under_way = UnderWay(count);
            if self.epoch.load(SeqCst) == epoch {
                return under_way;
            }
            // The epoch has ended without this start, whose drop takes it back.
        }
    }

    /// Begins the next epoch, if it may. Returns the current one.
    fn advance(&self) -> u64 {
        let epoch = self.epoch.load(SeqCst);
        if self.count(epoch + 1).load(SeqCst) == 0 {
            // Ignored: another thread has begun it.
            let _ = self.epoch.compare_exchange(epoch, epoch + 1, SeqCst, SeqCst);
        }
        self.epoch.load(SeqCst)
    }

    fn has_ended(&self, epoch: u64) -> bool {
        // Twice: if nothing is under way, the first look sees it.
        self.advance().max(self.advance()) >= epoch + 2
    }
}

/// A start, until it is dropped.
pub(super) struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Records that a start begins.
pub(super) fn begin() -> UnderWay<'static> {
    STARTS.get().begin()
}

/// The starts that were under way at a time, in this process and by this library.
///
/// Starts by other code of the process are not known.
#[derive(Debug)]
pub struct StartsUnderWay {
    epoch: u64,
    /// The processes of the starts that have not executed their programs, once the starts are over.
    leaving: Option<Vec<i32>>,
}

impl StartsUnderWay {
    /// Returns those that are under way now.
    #[must_use]
    pub fn now() -> StartsUnderWay {
        StartsUnderWay { epoch: STARTS.get().epoch.load(SeqCst), leaving: None }
    }

    /// Returns true once all of them are over, and none of their processes holds a handle that it does not inherit.
    ///
    /// # Platform
    /// Linux: the supervisor of a tree executes its program a moment after the start is over.
    #[must_use]
    pub fn are_over(&mut self) -> bool {
        if !STARTS.get().has_ended(self.epoch) {
            return false;
        }
        let now = imp::leaving();
        let leaving = self.leaving.get_or_insert_with(|| now.clone());
        leaving.retain(|process| now.contains(process));
        leaving.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_over_once_each_that_was_under_way_is() {
        let starts = Starts::new();
        let now = || starts.epoch.load(SeqCst);
        assert!(starts.has_ended(now()), "none is under way");
        let (first, second) = (starts.begin(), starts.begin());
        let asked = now();
        assert!(!starts.has_ended(asked));
        let third = starts.begin();
        drop(first);
        assert!(!starts.has_ended(asked), "the second is under way");
        drop(second);
        let is_over = starts.has_ended(asked);
        let fourth = starts.begin();
        drop(third);
        assert!(is_over || starts.has_ended(asked), "later starts do not count");
        let asked = now();
        drop(starts.begin());
        assert!(!starts.has_ended(asked), "the fourth is under way, whichever epoch it is in");
        drop(fourth);
        assert!(starts.has_ended(asked));
    }

    #[test]
    fn starts_that_never_pause_are_over_too() {
        let starts = Starts::new();
        let mut before = starts.begin();
        for _ in 0..10 {
            let asked = starts.epoch.load(SeqCst);
            let next = starts.begin();
            assert!(!starts.has_ended(asked));
            drop(std::mem::replace(&mut before, next));
            let mut turns = 0;
            while !starts.has_ended(asked) {
                let next = starts.begin();
                drop(std::mem::replace(&mut before, next));
                turns += 1;
                assert!(turns < 4, "one start is under way at each time, and never the same");
            }
        }
    }
}
