//! The waits for children that somebody holds, and that are waited for again and again.

#[cfg(feature = "tokio")]
mod task;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::child::ChildHandle;

use super::state::{NextLook, RunState};
use crate::error::Failed;
use crate::rules::Rules;

/// A run without streams, between two waits: where a stop that one of them has begun stands.
///
/// If its rules are enforced in the background, the background thread finds it here. A wait takes it out, and enforces
/// the rules itself.
#[derive(Debug, Default)]
pub(crate) struct SuspendedRun(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    run: Option<Box<RunState>>,
    /// Called when the run comes back, if the background thread has missed it.
    call: Option<fn()>,
    was_missed: bool,
}

/// A run that is waited for.
///
/// # Drop
/// Suspends it again: the next wait goes on with it.
#[derive(Debug)]
struct ActiveWait<'a> {
    suspended: &'a SuspendedRun,
    /// Taken by the end.
    run: Option<Box<RunState>>,
}

/// The way to stop children, for [`SuspendedRun::stop`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopRequest {
    pub(crate) signal: Signal,
    pub(crate) grace: Duration,
}

impl StopRequest {
    /// As the command says.
    pub(crate) fn by(rules: &Rules) -> StopRequest {
        StopRequest { signal: rules.stop_signal, grace: rules.kill_grace }
    }

    /// The same rules, with this signal.
    fn rules(self, rules: &Rules) -> Rules {
        Rules { stop_signal: self.signal, cancel: None, ..rules.clone() }
    }
}

impl SuspendedRun {
    /// Returns true if a wait has left something to go on with.
    pub(crate) fn is_begun(&self) -> bool {
        self.lock().run.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each of its fields is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the run out.
    pub(crate) fn take_out(&self) -> Option<Box<RunState>> {
        self.lock().run.take()
    }

    /// Puts the run back.
    pub(crate) fn put(&self, run: Box<RunState>) {
        let mut inner = self.lock();
        // A stop that has begun goes on at another time than was expected.
        let is_new = inner.was_missed || run.is_stopping();
        inner.was_missed = false;
        // Where two threads wait, one of the runs is as good as the other.
        inner.run = Some(run);
        let call = inner.call.filter(|_| is_new);
        drop(inner);
        if let Some(call) = call {
            call();
        }
    }

    /// Sets the function that is called when a run comes back that was missed.
    pub(crate) fn call_when_missed(&self, call: fn()) {
        self.lock().call = Some(call);
    }

    /// Looks at the run, if it is here; otherwise whoever has it enforces its rules.
    pub(crate) fn look(&self, look: impl FnOnce(&mut RunState) -> NextLook) -> NextLook {
        let mut inner = self.lock();
        match &mut inner.run {
            Some(run) => look(run),
            None => {
                inner.was_missed = true;
                NextLook::default()
            }
        }
    }

    /// Waits until the children have ended, but not longer than until then; `false`: they have not. After an error
    /// they are as they were.
    pub(crate) fn wait(
        &self,
        new: impl FnOnce() -> RunState,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, Failed> {
        self.take(new).see_through(children, rules, until)
    }

    /// Stops the children and waits until they have ended.
    pub(crate) fn stop(
        &self,
        new: impl FnOnce() -> RunState,
        children: &[ChildHandle],
        rules: &Rules,
        how: StopRequest,
    ) -> Result<(), Failed> {
        if have_ended(children)? {
            return Ok(());
        }
        let rules = how.rules(rules);
        let mut waiting = self.take(new);
        waiting.stop(how, children, &rules)?;
        waiting.see_through(children, &rules, None).map(drop)
    }

    /// Takes the suspended run, or a new one: also where another thread is in a wait for the one that was suspended.
    fn take(&self, new: impl FnOnce() -> RunState) -> ActiveWait<'_> {
        let run = self.take_out().unwrap_or_else(|| Box::new(new()));
        ActiveWait { suspended: self, run: Some(run) }
    }
}

impl ActiveWait<'_> {
    fn see_through(
        mut self,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, Failed> {
        let Some(run) = &mut self.run else { return Ok(true) };
        while run.step_until(until, children, rules)? {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(false);
            }
        }
        self.finish(children)
    }

    fn stop(
        &mut self,
        how: StopRequest,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), Failed> {
        match &mut self.run {
            Some(run) => run.stop_within(how.grace, children, rules),
            None => Ok(()),
        }
    }

    fn finish(mut self, children: &[ChildHandle]) -> Result<bool, Failed> {
        match self.run.take() {
            Some(run) => run.finish(children).map(|_| true),
            None => Ok(true),
        }
    }
}

impl Drop for ActiveWait<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.suspended.put(run);
        }
    }
}

/// True where all have ended: then nobody is to be told to stop.
fn have_ended(children: &[ChildHandle]) -> Result<bool, Failed> {
    for child in children {
        if child.try_wait().map_err(|error| ("wait for", error))?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
