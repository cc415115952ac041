//! Steps for tasks.

use std::task::{Context, Poll, ready};
use std::time::Instant;

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::Watch;

use super::{State, Steps};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::output::{Ending, Output};
use crate::run::process::Children as _;
use crate::run::stop_targets::StopTargets;
use crate::runtime::check_runtime_to_wait;

impl Steps {
    /// Polls [`step_until`](Self::step_until). `Pending`, or the error of a missing runtime, leaves the state unchanged.
    pub(crate) fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
        until: Option<Instant>,
    ) -> Poll<Result<bool, Error>> {
        // Before anything else: the next call may be made in a runtime.
        if self.state == State::Running {
            check_runtime_to_wait(&self.program)?;
        }
        self.resume();
        let (State::Running, Some(run)) = (self.state, &mut self.run) else {
            return Poll::Ready(Ok(false));
        };
        self.stdin = None;
        let stepped = run.poll_step(cx, watch, until, &self.processes, &self.rules);
        self.suspend();
        let stepped = ready!(stepped);
        if stepped.is_err() {
            self.kill();
        }
        Poll::Ready(self.note(stepped))
    }

    /// Takes a single step.
    #[cfg(pipewright_test_hooks)]
    pub(super) async fn step_async(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        let mut watch = Watch::default();
        std::future::poll_fn(|cx| self.poll_step(cx, &mut watch, until)).await
    }

    /// Steps to the end, and returns the result with the kept bytes of the streams.
    pub(crate) fn poll_output(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
    ) -> Poll<Result<Output, Error>> {
        while ready!(self.poll_step(cx, watch, None))? {}
        // Drops the registrations, which would keep a pipe open.
        *watch = Watch::default();
        Poll::Ready(self.output().unwrap_or_else(|| Err(self.already_reported())))
    }

    /// Reads and discards the rest, and returns the result without streams.
    pub(crate) fn poll_finish(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
    ) -> Poll<Result<Ending, Error>> {
        self.keep_nothing();
        self.poll_output(cx, watch).map_ok(Output::without_streams)
    }

    /// Stops the children, as a cancel does.
    pub(crate) fn stop(&mut self) {
        self.resume();
        let Some(run) = &mut self.run else { return };
        let stopped = run.stop(Outcome::Cancelled, &self.processes, &self.rules, Instant::now());
        self.suspend();
        if stopped.is_err() {
            self.kill();
        }
    }

    /// Sends a signal to the children. Errors are ignored: a child has ended, or has changed its user.
    pub(crate) fn signal(&self, signal: Signal) {
        for child in self.processes.iter() {
            let _ = child.signal(signal);
        }
    }

    /// Kills the children and the descendants that a kill reaches, unless the run has ended. Does not wait for them,
    /// because that would block the task. Does nothing in a fork of the process that has started them.
    pub(crate) fn kill(&mut self) {
        if !self.processes.made_in().is_current() {
            return;
        }
        if self.run.is_some() || self.shared.as_ref().is_some_and(|suspended| suspended.has_run()) {
            // Ignored: a child that has changed its user cannot be killed.
            let _ = StopTargets::default().kill(&self.processes);
        }
    }
}
