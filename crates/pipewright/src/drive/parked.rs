//! The waits for children that somebody holds, and that are waited for again and again.

#[cfg(feature = "tokio")]
mod task;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::process::child::ChildHandle;

use super::{Failed, NextLook, Run};
use crate::command::Rules;

/// A run without streams, between two waits: where a stop that one of them has begun stands.
///
/// Where its time is kept in the background, it is here for that: whoever waits has taken it, and keeps the time himself.
#[derive(Debug, Default)]
pub(crate) struct Parked(Mutex<Place>);

#[derive(Debug, Default)]
struct Place {
    run: Option<Box<Run>>,
    /// Where its time is kept: to be called when it comes back, if it was missed.
    call: Option<fn()>,
    was_missed: bool,
}

/// A run that is waited for.
///
/// # Drop
/// Parks it again: the next wait goes on with it.
#[derive(Debug)]
struct Waiting<'a> {
    parked: &'a Parked,
    /// Taken by the end.
    run: Option<Box<Run>>,
}

/// How children are stopped, for [`Parked::stop`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop {
    pub(crate) signal: Signal,
    pub(crate) grace: Duration,
}

impl Stop {
    /// As the command says.
    pub(crate) fn by(rules: &Rules) -> Stop {
        Stop { signal: rules.stop_signal, grace: rules.kill_grace }
    }

    /// The same rules, with this signal.
    fn rules(self, rules: &Rules) -> Rules {
        Rules { stop_signal: self.signal, cancel: None, ..rules.clone() }
    }
}

impl Parked {
    /// True where a wait has left something to go on with.
    pub(crate) fn is_begun(&self) -> bool {
        self.place().run.is_some()
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        // Each of its fields is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the run out.
    pub(crate) fn take_out(&self) -> Option<Box<Run>> {
        self.place().run.take()
    }

    /// Puts the run back.
    pub(crate) fn put(&self, run: Box<Run>) {
        let mut place = self.place();
        // A stop that has begun goes on at another time than was expected.
        let is_new = place.was_missed || run.is_stopping();
        place.was_missed = false;
        // Where two threads wait, one of the runs is as good as the other.
        place.run = Some(run);
        let call = place.call.filter(|_| is_new);
        drop(place);
        if let Some(call) = call {
            call();
        }
    }

    /// Has that called when a run comes back that was missed.
    pub(crate) fn call_when_missed(&self, call: fn()) {
        self.place().call = Some(call);
    }

    /// Looks at the run, if it is here; otherwise whoever has it keeps its time.
    pub(crate) fn look(&self, look: impl FnOnce(&mut Run) -> NextLook) -> NextLook {
        let mut place = self.place();
        match &mut place.run {
            Some(run) => look(run),
            None => {
                place.was_missed = true;
                NextLook::default()
            }
        }
    }

    /// Waits until the children have ended, but not longer than until then; `false`: they have not. After an error
    /// they are as they were.
    pub(crate) fn wait(
        &self,
        new: impl FnOnce() -> Run,
        exits: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, Failed> {
        self.take(new).see_through(exits, rules, until)
    }

    /// Stops the children and waits until they have ended.
    pub(crate) fn stop(
        &self,
        new: impl FnOnce() -> Run,
        exits: &[ChildHandle],
        rules: &Rules,
        how: Stop,
    ) -> Result<(), Failed> {
        if have_ended(exits)? {
            return Ok(());
        }
        let rules = how.rules(rules);
        let mut waiting = self.take(new);
        waiting.stop(how, exits, &rules)?;
        waiting.see_through(exits, &rules, None).map(drop)
    }

    /// The parked run, or a new one: also where another thread is in a wait for the one that was parked.
    fn take(&self, new: impl FnOnce() -> Run) -> Waiting<'_> {
        let run = self.take_out().unwrap_or_else(|| Box::new(new()));
        Waiting { parked: self, run: Some(run) }
    }
}

impl Waiting<'_> {
    fn see_through(
        mut self,
        exits: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, Failed> {
        let Some(run) = &mut self.run else { return Ok(true) };
        while run.step_until(until, exits, rules)? {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(false);
            }
        }
        self.finish(exits)
    }

    fn stop(&mut self, how: Stop, exits: &[ChildHandle], rules: &Rules) -> Result<(), Failed> {
        match &mut self.run {
            Some(run) => run.stop_within(how.grace, exits, rules),
            None => Ok(()),
        }
    }

    fn finish(mut self, exits: &[ChildHandle]) -> Result<bool, Failed> {
        match self.run.take() {
            Some(run) => run.finish(exits).map(|_| true),
            None => Ok(true),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.parked.put(run);
        }
    }
}

/// True where all have ended: then nobody is to be told to stop.
fn have_ended(exits: &[ChildHandle]) -> Result<bool, Failed> {
    for exit in exits {
        if exit.try_wait().map_err(|error| ("wait for", error))?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
