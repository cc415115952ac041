//! The log of a batch, if it has one.

use std::collections::HashSet;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use pipewright_os::base::error::Quoted;

use super::LiveJob;
use crate::executor::NODES_END_WITHIN;
use crate::journal::{self, Intent, Journal, LogError, LoggedJob, LoggedOutput, Past, RunFacts};
use crate::output::{KeepBeside, OutputSummary};
use crate::scheduler::{JobEnd, JobNumber};
use crate::vocabulary::{AttemptEnd, AttemptKey, JobOutcome};

#[derive(Debug, Clone)]
pub(crate) struct LogSettings {
    pub(crate) path: PathBuf,
    /// Continue the batch of the log, or start one if there is none. Otherwise the log must not exist.
    pub(crate) resume: bool,
    /// Run jobs again that failed in an earlier run.
    pub(crate) retry_failed: bool,
    /// Run jobs again that run at most once, and may have run.
    pub(crate) rerun_unknown: bool,
    pub(crate) facts: RunFacts,
}

/// The log, or nothing.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) journal: Option<Journal>,
    past: Option<Past>,
    /// It was to be continued, and did not exist.
    is_begun: bool,
    retry_failed: bool,
    rerun_unknown: bool,
    /// The jobs are those of the log.
    is_input: bool,
    /// Jobs whose attempt has ended, and about which nothing is decided yet. Both belong in one commit.
    pub(super) undecided: HashSet<JobNumber>,
}

impl Log {
    /// Opens the log, if there is to be one.
    pub(super) fn open(
        settings: Option<&LogSettings>,
        waker: journal::Waker,
    ) -> Result<Log, LogError> {
        let Some(settings) = settings else {
            return Ok(Log {
                journal: None,
                past: None,
                is_begun: false,
                retry_failed: false,
                rerun_unknown: false,
                is_input: false,
                undecided: HashSet::new(),
            });
        };
        let LogSettings { path, resume, retry_failed, rerun_unknown, facts } = settings;
        // The same line begins a batch and continues it. Without an input there is nothing to begin. A log that another
        // process makes meanwhile is an error of the creation.
        let is_begun = *resume && !facts.from_log && Journal::is_missing(path)?;
        let (journal, past) = match *resume && !is_begun {
            true => {
                Journal::resume(path, facts, waker).map(|(journal, past)| (journal, Some(past)))?
            }
            false => (Journal::create(path, facts, waker)?, None),
        };
        let (retry_failed, rerun_unknown) = (*retry_failed, *rerun_unknown);
        let is_input = facts.from_log;
        let journal = Some(journal);
        let undecided = HashSet::new();
        Ok(Log { journal, past, is_begun, retry_failed, rerun_unknown, is_input, undecided })
    }

    /// Returns the place where output is kept until it is printed.
    pub(super) fn keep_beside(&self) -> Option<KeepBeside> {
        let journal = self.journal.as_ref()?;
        let (log, batch_id) = (journal.path.clone(), journal.batch_id.clone());
        Some(KeepBeside { log, batch_id, is_resumed: self.is_resumed() })
    }

    /// Returns true if this run continues an earlier one.
    pub(super) fn is_resumed(&self) -> bool {
        self.past.is_some()
    }

    /// Returns messages about the log: it is resumed, or slower than usual.
    pub(super) fn notes(&self) -> Vec<String> {
        let Some(journal) = &self.journal else { return Vec::new() };
        let resumed = self.past.as_ref().map(|past| {
            let jobs = if past.len() == 1 { "job" } else { "jobs" };
            format!("run {} of this batch; the log has {} {jobs}", journal.run, past.len())
        });
        let begun = self.is_begun.then(|| {
            let path = Quoted(journal.path.as_os_str());
            format!("log {path} is new: this is the first run of its batch")
        });
        let mode = journal.mode.notice().map(ToOwned::to_owned);
        let lost = journal.lost_outputs.iter().cloned();
        resumed.into_iter().chain(begun).chain(mode).chain(lost).collect()
    }

    /// Returns the end that a job had in an earlier run, if it counts in this one.
    pub(super) fn past(&mut self, number: JobNumber, job: &LiveJob) -> Option<JobEnd> {
        let past = self.past.as_mut()?.look_up(job.id)?;
        if let Some(journal) = self.journal.as_mut().filter(|_| !self.is_input) {
            journal.is_in_input(&past, &logged(number, job));
        }
        past.end().filter(|end| match end.outcome {
            JobOutcome::Failed => !self.retry_failed,
            JobOutcome::Unknown => !self.rerun_unknown,
            _ => true,
        })
    }

    /// Notes the end of the input: the jobs that wait, and those of the log that it does not have. Returns the number
    /// of those.
    pub(super) fn input_ended<'a>(
        &mut self,
        jobs: u64,
        waiting: impl Iterator<Item = (JobNumber, &'a LiveJob)>,
    ) -> usize {
        let Some(journal) = self.journal.as_mut().filter(|_| !self.is_input) else { return 0 };
        for (number, job) in waiting {
            journal.waits(&logged(number, job));
        }
        let removed = || self.past.iter().flat_map(Past::removed);
        journal.input_ended(jobs, removed());
        removed().count()
    }

    /// Notes an attempt that is about to start. Without a slot, the attempt waits until this is durable: returns true
    /// if a report of that follows.
    pub(super) fn intend(
        &mut self,
        number: JobNumber,
        job: &LiveJob,
        attempt: u32,
        slot: Option<u32>,
    ) -> bool {
        let Some(journal) = &mut self.journal else { return false };
        let durable = slot.is_none();
        journal.ledger.intend(&Intent { job: logged(number, job), attempt, slot, durable });
        durable
    }

    /// Notes that an attempt which was noted has not begun.
    pub(super) fn void(&mut self, key: AttemptKey) {
        if let Some(journal) = &mut self.journal {
            journal.ledger.void(key);
        }
    }

    pub(super) fn ended(&mut self, end: &AttemptEnd, output: &OutputSummary, is_lost: bool) {
        if let Some(journal) = &mut self.journal {
            let (path, stderr_tail) = (output.path.as_deref(), output.tail.as_bytes());
            journal.ledger.ended(end, LoggedOutput { path, stderr_tail, is_lost });
            self.undecided.insert(JobNumber(end.key.job));
        }
    }

    /// Hands over what was noted if it is much, unless the half of something would be committed.
    pub(super) fn submit_if_large(&mut self) {
        if let Some(journal) = self.journal.as_mut().filter(|_| self.undecided.is_empty()) {
            journal.submit_if_large();
        }
    }

    /// Notes the end of a job. Returns another one if the log keeps that: no attempt has begun in this run.
    pub(super) fn settled(
        &mut self,
        number: JobNumber,
        job: &LiveJob,
        end: &JobEnd,
        reason: Option<&str>,
    ) -> Option<JobOutcome> {
        self.journal.as_mut()?.settled(&logged(number, job), end.into(), reason)
    }

    /// Writes the end of the run, and closes the log.
    pub(super) fn close(&mut self, exit_code: i32, how: &str) -> Result<(), LogError> {
        self.journal.take().map_or(Ok(()), |journal| journal.close(Some(exit_code), how))
    }
}

/// Returns the key of the scheduler's words.
pub(super) fn attempt_of(key: AttemptKey) -> (JobNumber, u32) {
    (JobNumber(key.job), key.attempt)
}

fn logged(number: JobNumber, job: &LiveJob) -> LoggedJob<'_> {
    LoggedJob { number: number.0, id: job.id, job: &job.job, once: job.once }
}

/// Waits until the nodes of a killed runner have missed it, and have ended its jobs. How long it has been dead is not
/// known.
pub(super) fn wait_for_nodes() {
    let until = Instant::now() + NODES_END_WITHIN;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|it| !it.is_zero()) {
        thread::park_timeout(left);
    }
}
