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
    /// The first time of the set, at the end of its last step.
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
        if !self.is_guarded {
            return;
        }
        let due = set.next_due();
        let mut plan = self.shared.plan();
        plan.due = due;
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
        self.shared.set().start(index, command)
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
        while self.wait() {
            let set = match self.set.try_lock() {
                Ok(set) => Some(set),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            match set {
                Some(mut set) => {
                    let due = set.enforce();
                    let mut plan = self.plan();
                    (plan.due, plan.looks_at) = (due, due);
                }
                None => {
                    let soon = Instant::now() + PAUSE;
                    let mut plan = self.plan();
                    plan.looks_at = plan.due.map(|due| due.max(soon));
                }
            }
        }
    }

    /// Waits until it is time for a look. Returns false at the end.
    fn wait(&self) -> bool {
        let mut plan = self.plan();
        loop {
            if plan.is_over {
                return false;
            }
            let left = plan.looks_at.map(|at| at.saturating_duration_since(Instant::now()));
            plan = match left {
                Some(Duration::ZERO) => return true,
                Some(left) => {
                    let waited = self.changed.wait_timeout(plan, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(plan).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
