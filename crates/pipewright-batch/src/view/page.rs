//! The page about a batch, from its log.

use std::ops::ControlFlow;

use super::LogView;
use crate::journal::read::AttemptFilter;
use crate::journal::{LogError, system_time};
use crate::watch::{BatchFacts, PageModel, Update};

impl LogView {
    /// Returns a page about the batch: HTML with everything in it.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn page(&self) -> Result<String, LogError> {
        let (batch, runs) = (self.log.batch()?, self.log.runs()?);
        let started = runs.first().map_or(batch.created, |run| run.started);
        let facts = BatchFacts {
            command: self.log.last_command()?,
            slots: runs.iter().map(|run| run.slots).max().unwrap_or(1),
            started: system_time(started),
            log: Some(self.log.path().display().to_string()),
        };
        let mut page = PageModel::new(facts);
        self.log.for_each_attempt(&AttemptFilter::default(), |attempt| {
            let end = &attempt.end;
            let (key, now) = (end.key, end.started.checked_add(end.elapsed).unwrap_or(end.started));
            page.update(&Update::Started { key, slot: attempt.slot.unwrap_or(0), text: "" }, now);
            let last_lines = attempt.stderr_tail.as_deref().unwrap_or_default();
            page.update(&Update::Ended { end, text: &attempt.job.command, last_lines }, now);
            ControlFlow::Continue(())
        })?;
        let end = runs.iter().filter_map(|run| run.ended).fold(started, f64::max);
        self.log.for_each_job(None, |job| {
            if let Some(outcome) = job.state.outcome() {
                let (job, reason) = (job.number, job.reason.as_deref());
                page.update(&Update::Settled { job, outcome, reason }, system_time(end));
            }
            ControlFlow::Continue(())
        })?;
        Ok(page.html())
    }
}
