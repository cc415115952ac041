//! A set of runs whose times are kept while its owner is elsewhere, as in a closure that writes to a disk which does
//! not answer.
//!
//! A step has the lock of the set, and sees to the times itself. Between two steps the lock is free, and a thread takes
//! it when a time has come. The closures of tees are called between two steps.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::service_thread;
use pipewright_os::base::wake::Wake;

use super::run_set::{CommandEnd, RunSet, RunningSet};
use super::{Runnable, StepSet};
use crate::cancel::CancelToken;
use crate::error::Error;
use crate::run::earlier;

/// The pause of the thread while a time has come and the owner is in a step, which sees to it.
const PAUSE: Duration = Duration::from_millis(100);

/// A set of runs, with a thread that keeps its times once one has any.
///
/// # Drop
/// Kills the running commands. In a fork of the process that made it, the copy does nothing.
#[derive(Debug)]
pub(super) struct GuardedSet {
    shared: Arc<Shared>,
    is_guarded: bool,
    made_in: Generation,
}

#[derive(Debug, Default)]
struct Shared {
    set: Mutex<RunSet>,
    /// Locked after the set, if both are.
    plan: Mutex<Plan>,
    changed: Condvar,
}

/// The times of the thread.
#[derive(Debug, Default)]
struct Plan {
    /// The first time of the set, at the end of its last step, and of what was started since.
    due: Option<Instant>,
    /// The time at which the thread looks. It may be too early, never too late.
    looks_at: Option<Instant>,
    has_thread: bool,
    is_over: bool,
}

impl Default for GuardedSet {
    fn default() -> GuardedSet {
        let made_in = Generation::current();
        GuardedSet { shared: Arc::default(), is_guarded: false, made_in }
    }
}

impl GuardedSet {
    /// Keeps the times also between two steps.
    pub(super) fn guard(&mut self) {
        self.is_guarded = true;
        self.shared.set().call_tees_late();
    }

    /// Returns the number of the process of a command; `None` if it does not run.
    pub(super) fn pid(&self, index: usize) -> Option<u32> {
        self.shared.set().pid(index)
    }

    /// Tells the thread the first time of the set.
    fn plan(&self, set: &mut RunSet) {
        if self.is_guarded {
            let due = set.next_due();
            let mut plan = self.shared.plan();
            plan.due = due;
            self.look_at(due, plan);
        }
    }

    /// Tells the thread a time of a command that was added to the set.
    fn plan_one(&self, due: Option<Instant>) {
        let mut plan = self.shared.plan();
        plan.due = earlier(plan.due, due);
        self.look_at(due, plan);
    }

    /// Lets the thread look at that time, unless it looks before.
    fn look_at(&self, due: Option<Instant>, mut plan: MutexGuard<'_, Plan>) {
        let Some(due) = due.filter(|due| plan.looks_at.is_none_or(|at| *due < at)) else { return };
        if !plan.has_thread {
            let shared = Arc::clone(&self.shared);
            let started = service_thread::start(c"pw-times", move || shared.serve());
            // Without room for a thread, the next step tries again.
            plan.has_thread = started.is_ok();
        }
        if plan.has_thread {
            plan.looks_at = Some(due);
            drop(plan);
            self.shared.changed.notify_one();
        }
    }
}

impl RunningSet for GuardedSet {
    fn len(&self) -> usize {
        self.shared.set().len()
    }

    fn start(&mut self, index: usize, command: Runnable<'_>) -> Result<(), Error> {
        let mut set = self.shared.set();
        set.start(index, command)?;
        if self.is_guarded {
            // No step may follow: a caller takes a result that came before.
            self.plan_one(set.due_of_last_start());
        }
        Ok(())
    }

    fn stop(&mut self) {
        let mut set = self.shared.set();
        set.stop();
        self.plan(&mut set);
    }

    fn stop_one(&mut self, index: usize) -> bool {
        let mut set = self.shared.set();
        let is_stopped = set.stop_one(index);
        self.plan(&mut set);
        is_stopped
    }
}

impl StepSet for GuardedSet {
    fn step(
        &mut self,
        cancel: Option<&CancelToken>,
        wake: Option<&Wake>,
        limit: Option<Instant>,
    ) -> Vec<CommandEnd> {
        let mut set = self.shared.set();
        let ends = set.step_all(cancel, wake, limit);
        self.plan(&mut set);
        let mut from = 0;
        while let Some(mut late) = set.take_late_tee(from) {
            // The closure may take any time.
            drop(set);
            late.tee.call();
            set = self.shared.set();
            from = set.put_late_tee(late);
        }
        if ends.is_empty() {
            // One that came with results waits until they have been returned.
            set.resume_panics();
        }
        ends
    }
}

impl Drop for GuardedSet {
    fn drop(&mut self) {
        // In a fork the thread is missing, and may have had the locks.
        if self.made_in.is_current() {
            self.shared.plan().is_over = true;
            self.shared.changed.notify_one();
            drop(std::mem::take(&mut *self.shared.set()));
        }
    }
}

impl Plan {
    /// Puts off a look that came while the owner had the set.
    fn put_off(&mut self, now: Instant) {
        // A time that has come is left to the owner's step, which tells the next one at its end.
        self.looks_at = self.due.map(|due| if due > now { due } else { now + PAUSE });
    }
}

impl Shared {
    fn set(&self) -> MutexGuard<'_, RunSet> {
        // A panic of a closure goes through, and leaves it consistent.
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        // Each field is consistent on its own.
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of the thread.
    fn serve(&self) {
        while let Some(mut plan) = self.wait() {
            // With the plan locked, though the set comes first: this does not wait. A step that has the set has yet to
            // tell its times, or has told them.
            let set = match self.set.try_lock() {
                Ok(set) => Some(set),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            match set {
                Some(mut set) => {
                    drop(plan);
                    let due = set.enforce();
                    let mut plan = self.plan();
                    (plan.due, plan.looks_at) = (due, due);
                }
                None => plan.put_off(Instant::now()),
            }
        }
    }

    /// Waits until it is time for a look. Returns the plan, or `None` at the end.
    fn wait(&self) -> Option<MutexGuard<'_, Plan>> {
        let mut plan = self.plan();
        loop {
            if plan.is_over {
                return None;
            }
            let left = plan.looks_at.map(|at| at.saturating_duration_since(Instant::now()));
            plan = match left {
                Some(Duration::ZERO) => return Some(plan),
                Some(left) => {
                    let waited = self.changed.wait_timeout(plan, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(plan).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step may end, and tell the next time, between the look and its end.
    #[test]
    fn a_look_that_finds_the_set_in_a_step_is_put_off_no_later_than_the_next_time() {
        let now = Instant::now();
        let later = now + Duration::from_millis(1);
        let looks_at = |due| {
            let mut plan = Plan { due, looks_at: Some(now), ..Plan::default() };
            plan.put_off(now);
            plan.looks_at
        };
        assert_eq!(looks_at(Some(later)), Some(later));
        assert_eq!(looks_at(Some(now)), Some(now + PAUSE));
        assert_eq!(looks_at(None), None);
    }
}
