//! The same waits, by a task.

use std::time::Instant;

use pipewright_os::process::child::ChildHandle;

use super::{ActiveWait, StopRequest, SuspendedRun, have_ended};
use crate::error::Failed;
use crate::rules::Rules;
use crate::run::state::RunState;

impl SuspendedRun {
    /// As [`wait`](Self::wait), and blocks no thread.
    pub(crate) async fn wait_async(
        &self,
        new: impl FnOnce() -> RunState,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, Failed> {
        self.take(new).see_through_async(children, rules, until).await
    }

    /// As [`stop`](Self::stop), and blocks no thread.
    pub(crate) async fn stop_async(
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
        waiting.see_through_async(children, &rules, None).await.map(drop)
    }
}

impl ActiveWait<'_> {
    async fn see_through_async(
        mut self,
        children: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, Failed> {
        let Some(run) = &mut self.run else { return Ok(true) };
        match run.run_until(until, children, rules).await? {
            true => self.finish(children),
            false => Ok(false),
        }
    }
}
