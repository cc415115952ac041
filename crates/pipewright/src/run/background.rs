//! Enforces the rules of runs while their callers are away, on one thread for all of them.
//!
//! The thread starts with the first such run and ends when there have been none for a while.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pipewright_os::base::generation::{Generation, PerProcess};
use pipewright_os::base::service_thread;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;

use super::process::Children;
use super::state::NextLook;
use super::suspended::SuspendedRun;
use crate::rules::{Rules, earlier};

/// The time that the thread stays when it has nothing to do.
const IDLE: Duration = Duration::from_secs(1);

/// The pause of the thread when it cannot wait.
const AFTER_ERROR: Duration = Duration::from_millis(20);

/// A fork has one of its own: it has neither the thread nor the children.
static RUNS: PerProcess<Mutex<Runs>> = PerProcess::new(Mutex::default);

#[derive(Debug, Default)]
struct Runs {
    runs: Vec<(u64, EnforcedRun)>,
    next: u64,
    /// Wakes the thread, while there is one.
    thread: Option<Arc<Wake>>,
}

/// A run whose rules are enforced in the background.
#[derive(Debug)]
pub(crate) struct EnforcedRun {
    pub(crate) children: Arc<dyn Children>,
    pub(crate) suspended: Arc<SuspendedRun>,
    pub(crate) rules: Rules,
}

/// Enforces the rules of runs in the background. By pointers: see [`on_demand`](crate::run::on_demand).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enforcer {
    /// Starts the thread if it does not run.
    pub(crate) prepare: fn() -> io::Result<()>,
    pub(crate) enforce: fn(EnforcedRun) -> Enforcement,
}

pub(super) const ENFORCER: Enforcer = Enforcer { prepare, enforce };

/// Keeps a run enforced in the background.
///
/// # Drop
/// Ends that. Nothing of the run is used any more.
#[derive(Debug)]
pub(crate) struct Enforcement {
    number: u64,
    home: Generation,
}

fn prepare() -> io::Result<()> {
    runs().wake_or_start()
}

fn enforce(run: EnforcedRun) -> Enforcement {
    run.suspended.call_when_missed(wake);
    let mut runs = runs();
    let number = runs.next;
    runs.next += 1;
    runs.runs.push((number, run));
    // Ignored: it was there a moment ago. If it has just ended and cannot be started again, the caller keeps the time
    // when he comes back.
    let _ = runs.wake_or_start();
    Enforcement { number, home: Generation::current() }
}

/// Makes the thread look at all runs.
fn wake() {
    let mut runs = runs();
    // Ignored as above.
    let _ = runs.wake_or_start();
}

impl Drop for Enforcement {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // A fork: what the other process keeps is no concern of this one.
            return;
        }
        let mut runs = runs();
        let at = runs.runs.iter().position(|(number, _)| *number == self.number);
        let run = at.map(|at| runs.runs.swap_remove(at));
        if let Some(wake) = &runs.thread {
            // It may wait for a token that is to be let go.
            wake.raise();
        }
        drop(runs);
        // Only now: the last handle on a child may go with it.
        drop(run);
    }
}

fn runs() -> MutexGuard<'static, Runs> {
    // A vector is whole between calls.
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
        service_thread::start(c"pipewright-time", move || tend(&for_thread))?;
        self.thread = Some(wake);
        Ok(())
    }
}

fn tend(wake: &Wake) {
    let mut was_idle = false;
    loop {
        let (mut until, mut tokens) = (None, Vec::new());
        let idle = {
            let mut runs = runs();
            wake.lower();
            if was_idle && runs.runs.is_empty() {
                // Under the lock: whoever comes next starts a new thread.
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
        // Ignored: a token for which there is no flag is looked at when something else wakes us.
        slots.extend(tokens.iter().filter_map(|token| token.wake().ok()).map(|it| Slot::Event(it)));
        let waited = wait::any(&mut slots, until);
        if waited.is_err() {
            // No memory for the wait: there is nothing better than to try again.
            thread::park_timeout(AFTER_ERROR);
        }
        was_idle = idle && matches!(waited, Ok(0));
    }
}

impl EnforcedRun {
    fn look(&self) -> NextLook {
        self.suspended.look(|run| run.enforce(self.children.handles(), &self.rules, Instant::now()))
    }
}
