//! The same steps, taken by a task.

use std::task::{Context, Poll, ready};
use std::time::Instant;

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::Watch;

use super::{State, Steps};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::output::{Ending, Output};
use crate::run::stop_targets::StopTargets;
use crate::runtime::check_runtime_to_wait;

impl Steps {
    /// As [`step_until`](Self::step_until). `Pending`: nothing is out, all is as it was; so after an error because no runtime
    /// drives the call.
    pub(crate) fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
        until: Option<Instant>,
    ) -> Poll<Result<bool, Error>> {
        // Before anything is begun: the next call may be made where there is one.
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

    /// One step on its own.
    #[cfg(pipewright_force_async)]
    pub(super) async fn step_async(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        let mut watch = Watch::default();
        std::future::poll_fn(|cx| self.poll_step(cx, &mut watch, until)).await
    }

    /// Steps to the end, and gives what was kept of the streams.
    pub(crate) fn poll_output(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
    ) -> Poll<Result<Output, Error>> {
        while ready!(self.poll_step(cx, watch, None))? {}
        // Nothing is registered any more that could keep a pipe open.
        *watch = Watch::default();
        Poll::Ready(self.output().unwrap_or_else(|| Err(self.already_reported())))
    }

    /// Reads the rest without keeping it, and tells how the child ended.
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

    /// Sends the children a signal. Ignored: they have ended, or are another user's by now.
    pub(crate) fn signal(&self, signal: Signal) {
        for child in self.processes.iter() {
            let _ = child.signal(signal);
        }
    }

    /// Kills the children and whom a kill of them reaches, if they have not ended. They are not
    /// waited for: a task must not be held up.
    pub(crate) fn kill(&mut self) {
        if self.run.is_some() || self.shared.as_ref().is_some_and(|suspended| suspended.is_begun())
        {
            // Ignored: another user's by now, whom we may not kill.
            let _ = StopTargets::default().kill(&self.processes);
        }
    }
}
