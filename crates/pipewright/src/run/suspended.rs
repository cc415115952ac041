//! A run between two waits, for children that the caller owns and may wait for repeatedly.

#[cfg(feature = "tokio")]
mod task;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::child::ChildHandle;

use super::state::{NextLook, RunState};
use crate::error::OperationError;
use crate::rules::Rules;

/// The state of a run without streams between two waits, such as a stop that one of the waits has begun.
///
/// If its rules are enforced in the background, the background thread finds it here. A wait takes it out, and enforces
/// the rules itself.
#[derive(Debug, Default)]
pub(crate) struct SuspendedRun(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    run: Option<Box<RunState>>,
    /// Called when the run is put back, if the background thread did not find it here.
    call: Option<fn()>,
    /// True if the background thread did not find the run here.
    was_missed: bool,
}

/// A run during a wait.
///
/// # Drop
/// Suspends the run again. The next wait continues it.
#[derive(Debug)]
struct ActiveWait<'a> {
    suspended: &'a SuspendedRun,
    /// `None` after the end.
    run: Option<Box<RunState>>,
}

/// The signal and the grace of a stop: see [`SuspendedRun::stop`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopRequest {
    pub(crate) signal: Signal,
    pub(crate) grace: Duration,
}

impl StopRequest {
    /// Returns the signal and the grace of the command.
    pub(crate) fn by(rules: &Rules) -> StopRequest {
        StopRequest { signal: rules.stop_signal, grace: rules.kill_grace }
    }

    /// Returns the command's rules with this signal, and without a cancel token.
    fn rules(self, rules: &Rules) -> Rules {
        Rules { stop_signal: self.signal, cancel: None, ..rules.clone() }
    }
}

impl SuspendedRun {
    /// Returns true if a wait has left a run to continue.
    pub(crate) fn has_run(&self) -> bool {
        self.lock().run.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each field is consistent on its own.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the run out.
    pub(crate) fn take_out(&self) -> Option<Box<RunState>> {
        self.lock().run.take()
    }

    /// Puts the run back.
    pub(crate) fn put(&self, run: Box<RunState>) {
        let mut inner = self.lock();
        // A stop that has begun changes the time of the next action.
        let is_new = inner.was_missed || run.is_stopping();
        inner.was_missed = false;
        // If two threads wait, either run will do.
        inner.run = Some(run);
        let call = inner.call.filter(|_| is_new);
        drop(inner);
        if let Some(call) = call {
            call();
        }
    }

    /// Sets the function to call when a run is put back that the background thread did not find.
    pub(crate) fn call_when_missed(&self, call: fn()) {
        self.lock().call = Some(call);
    }

    /// Calls `look` with the run, if it is here. Otherwise the wait that has it enforces its rules.
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

    /// Waits until the children have ended, but no longer than `until`. Returns false if they still run. An error does not
    /// affect them.
    pub(crate) fn wait(
        &self,
        new: impl FnOnce() -> RunState,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, OperationError> {
        self.take(new).run_to_end(children, rules, until)
    }

    /// Stops the children and waits until they have ended.
    pub(crate) fn stop(
        &self,
        new: impl FnOnce() -> RunState,
        children: &[ChildHandle],
        rules: &Rules,
        request: StopRequest,
    ) -> Result<(), OperationError> {
        match self.begin_stop(new, children, rules, request)? {
            Some((wait, rules)) => wait.run_to_end(children, &rules, None).map(drop),
            None => Ok(()),
        }
    }

    /// Requests the stop. Returns the wait for the end and its rules, or `None` if the children have ended.
    fn begin_stop(
        &self,
        new: impl FnOnce() -> RunState,
        children: &[ChildHandle],
        rules: &Rules,
        request: StopRequest,
    ) -> Result<Option<(ActiveWait<'_>, Rules)>, OperationError> {
        if have_ended(children)? {
            return Ok(None);
        }
        let rules = request.rules(rules);
        let mut wait = self.take(new);
        wait.stop(request, children, &rules)?;
        Ok(Some((wait, rules)))
    }

    /// Takes the suspended run, or creates one if there is none or another thread is waiting with it.
    fn take(&self, new: impl FnOnce() -> RunState) -> ActiveWait<'_> {
        let run = self.take_out().unwrap_or_else(|| Box::new(new()));
        ActiveWait { suspended: self, run: Some(run) }
    }
}

impl ActiveWait<'_> {
    fn run_to_end(
        mut self,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, OperationError> {
        let Some(run) = &mut self.run else { return Ok(true) };
        while run.step_until(until, children, rules)? {
            if run.is_late(until) {
                return Ok(false);
            }
        }
        self.finish(children)
    }

    fn stop(
        &mut self,
        request: StopRequest,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<(), OperationError> {
        match &mut self.run {
            Some(run) => run.stop_within(request.grace, children, rules),
            None => Ok(()),
        }
    }

    fn finish(mut self, children: &[ChildHandle]) -> Result<bool, OperationError> {
        match self.run.take() {
            Some(run) => run.finish_wait(children).map(|()| true),
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

/// Returns true if all children have ended, so that there is nothing to stop.
fn have_ended(children: &[ChildHandle]) -> Result<bool, OperationError> {
    for child in children {
        if child.try_wait().map_err(|error| ("wait for", error))?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
