//! The same waits, by a task.

use std::time::Instant;

use pipewright_os::process::child::ChildHandle;

use super::{Parked, Stop, Waiting, have_ended};
use crate::command::Rules;
use crate::drive::{Failed, Run};

impl Parked {
    /// As [`wait`](Self::wait), and blocks no thread.
    pub(crate) async fn wait_async(
        &self,
        new: impl FnOnce() -> Run,
        exits: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, Failed> {
        self.take(new).see_through_async(exits, rules, until).await
    }

    /// As [`stop`](Self::stop), and blocks no thread.
    pub(crate) async fn stop_async(
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
        waiting.see_through_async(exits, &rules, None).await.map(drop)
    }
}

impl Waiting<'_> {
    async fn see_through_async(
        mut self,
        exits: &[ChildHandle],
        rules: &Rules,
        until: Option<Instant>,
    ) -> Result<bool, Failed> {
        let Some(run) = &mut self.run else { return Ok(true) };
        match run.go_on_until(until, exits, rules).await? {
            true => self.finish(exits),
            false => Ok(false),
        }
    }
}
