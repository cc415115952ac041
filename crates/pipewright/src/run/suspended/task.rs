//! Waits and stops for tasks.

use std::time::Instant;

use pipewright_os::process::child::ChildHandle;

use super::{ActiveWait, StopRequest, SuspendedRun};
use crate::error::OperationError;
use crate::rules::Rules;
use crate::run::state::RunState;

impl SuspendedRun {
    /// Waits as [`wait`](Self::wait) does, without blocking the thread.
    pub(crate) async fn wait_async(
        &self,
        new: impl FnOnce() -> RunState,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, OperationError> {
        self.take(new).run_to_end_async(children, rules, until).await
    }

    /// Stops as [`stop`](Self::stop) does, without blocking the thread.
    pub(crate) async fn stop_async(
        &self,
        new: impl FnOnce() -> RunState,
        children: &[ChildHandle],
        rules: &Rules,
        request: StopRequest,
    ) -> Result<(), OperationError> {
        match self.begin_stop(new, children, rules, request)? {
            Some((wait, rules)) => wait.run_to_end_async(children, &rules, None).await.map(drop),
            None => Ok(()),
        }
    }
}

impl ActiveWait<'_> {
    async fn run_to_end_async(
        mut self,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, OperationError> {
        let Some(run) = &mut self.run else { return Ok(true) };
        match run.run_until(until, children, rules).await? {
            true => self.finish(children),
            false => Ok(false),
        }
    }
}
