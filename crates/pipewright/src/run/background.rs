//! Enforces the rules of runs while their callers do not wait, on one thread for all runs; and the place of a run's
//! state meanwhile.
//!
//! The thread starts with the first such run and ends after a second without any.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::base::generation::{Generation, PerProcess};
use pipewright_os::base::service_thread;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;

use super::options::Rules;
use super::run::Children;
use super::state::{NextLook, RunState};
use super::stop::earlier;

/// The time that the idle thread waits before it ends.
const IDLE: Duration = Duration::from_secs(1);

/// The pause of the thread after a wait that failed.
const AFTER_ERROR: Duration = Duration::from_millis(20);

/// The runs of this process. A fork gets an empty list: it has neither the thread nor the children.
static RUNS: PerProcess<Mutex<Runs>> = PerProcess::new(Mutex::default);

#[derive(Debug, Default)]
struct Runs {
    runs: Vec<(u64, EnforcedRun)>,
    next: u64,
    /// Wakes the thread; `None` if there is no thread.
    thread: Option<Arc<Wake>>,
}

/// A run whose rules are enforced in the background.
#[derive(Debug)]
pub(crate) struct EnforcedRun {
    pub(crate) children: Arc<dyn Children>,
    pub(crate) place: Arc<StatePlace>,
    pub(crate) rules: Rules,
}

/// The functions that enforce rules in the background. Called through pointers: see [`on_demand`](super::on_demand).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enforcer {
    /// Starts the thread if it does not run.
    pub(crate) prepare: fn() -> io::Result<()>,
    pub(crate) enforce: fn(EnforcedRun) -> Enforcement,
}

pub(super) const ENFORCER: Enforcer = Enforcer { prepare, enforce };

/// A guard: the rules of a run are enforced in the background while it exists.
///
/// # Drop
/// Ends the enforcement. Nothing of the run is used afterwards.
#[derive(Debug)]
pub(crate) struct Enforcement {
    number: u64,
    created_in: Generation,
}

fn prepare() -> io::Result<()> {
    runs().wake_or_start()
}

fn enforce(run: EnforcedRun) -> Enforcement {
    run.place.call_when_missed(wake);
    let mut runs = runs();
    let number = runs.next;
    runs.next += 1;
    runs.runs.push((number, run));
    // Ignored: the thread was there a moment ago. If it cannot be started again, the caller's next wait enforces the
    // rules.
    let _ = runs.wake_or_start();
    Enforcement { number, created_in: Generation::current() }
}

/// Wakes the thread, so that it checks all runs.
fn wake() {
    let mut runs = runs();
    // Ignored as above.
    let _ = runs.wake_or_start();
}

impl Drop for Enforcement {
    fn drop(&mut self) {
        if !self.created_in.is_current() {
            // A fork: the list belongs to the other process.
            return;
        }
        let mut runs = runs();
        let at = runs.runs.iter().position(|(number, _)| *number == self.number);
        let run = at.map(|at| runs.runs.swap_remove(at));
        if let Some(wake) = &runs.thread {
            // The thread may be waiting for this run's token, which it must let go.
            wake.raise();
        }
        drop(runs);
        // Outside the lock: this may drop the last handle of a child.
        drop(run);
    }
}

fn runs() -> MutexGuard<'static, Runs> {
    // The vector is consistent between calls.
    RUNS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runs {
    fn wake_or_start(&mut self) -> io::Result<()> {
        if let Some(wake) = &self.thread {
            wake.raise();
            return Ok(());
        }
        let wake = Arc::new(Wake::new()?);
        let for_thread = Arc::clone(&wake);
        service_thread::start(c"pipewright-time", move || serve(&for_thread))?;
        self.thread = Some(wake);
        Ok(())
    }
}

/// Runs the thread until it has been idle for [`IDLE`].
fn serve(wake: &Wake) {
    let mut was_idle = false;
    loop {
        let (mut until, mut tokens) = (None, Vec::new());
        let idle = {
            let mut runs = runs();
            wake.lower();
            if was_idle && runs.runs.is_empty() {
                // Under the lock, so that the next caller starts a new thread.
                runs.thread = None;
                return;
            }
            for (_, run) in &runs.runs {
                let next = run.look();
                until = earlier(until, next.until);
                tokens.extend(next.token);
            }
            runs.runs.is_empty()
        };
        if idle {
            until = Instant::now().checked_add(IDLE);
        }
        let mut slots = Vec::with_capacity(tokens.len() + 1);
        slots.push(Slot::Event(wake));
        // Ignored: a token without a flag is checked when something else wakes this thread.
        slots.extend(tokens.iter().filter_map(|token| token.wake().ok()).map(|it| Slot::Event(it)));
        let waited = wait::any(&mut slots, until);
        if waited.is_err() {
            // No memory for the wait: try again after a pause.
            thread::park_timeout(AFTER_ERROR);
        }
        was_idle = idle && matches!(waited, Ok(0));
    }
}

impl EnforcedRun {
    fn look(&self) -> NextLook {
        self.place.look(|run| run.enforce(self.children.handles(), &self.rules, Instant::now()))
    }
}

/// The place of a run's state between two waits, such as a stop that one of the waits has begun.
///
/// If the rules are enforced in the background, the background thread finds the state here. A wait takes it out, and
/// enforces the rules itself.
#[derive(Debug, Default)]
pub(crate) struct StatePlace(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Option<Box<RunState>>,
    /// Called when the state is put back, if the background thread did not find it here.
    call: Option<fn()>,
    /// True if the background thread did not find the state here.
    was_missed: bool,
}

impl StatePlace {
    /// Returns true if a wait has left a state to continue.
    pub(crate) fn has_state(&self) -> bool {
        self.lock().state.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each field is consistent on its own.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the state out.
    pub(crate) fn take_out(&self) -> Option<Box<RunState>> {
        self.lock().state.take()
    }

    /// Puts the state back.
    pub(crate) fn put(&self, state: Box<RunState>) {
        let mut inner = self.lock();
        // A stop that has begun changes the time of the next action.
        let is_new = inner.was_missed || state.is_stopping();
        inner.was_missed = false;
        // If two threads wait, either state will do.
        inner.state = Some(state);
        let call = inner.call.filter(|_| is_new);
        drop(inner);
        if let Some(call) = call {
            call();
        }
    }

    /// Sets the function to call when a state is put back that the background thread did not find.
    fn call_when_missed(&self, call: fn()) {
        self.lock().call = Some(call);
    }

    /// Calls `look` with the state, if it is here. Otherwise the wait that has it enforces its rules.
    fn look(&self, look: impl FnOnce(&mut RunState) -> NextLook) -> NextLook {
        let mut inner = self.lock();
        match &mut inner.state {
            Some(state) => look(state),
            None => {
                inner.was_missed = true;
                NextLook::default()
            }
        }
    }
}
