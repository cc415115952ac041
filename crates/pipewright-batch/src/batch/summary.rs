//! Counts of a batch, and its exit code.

use std::fmt;
use std::time::Duration;

use crate::executor::AttemptOutcome;
use crate::output::OutputError;
use crate::source::InputError;
use crate::vocabulary::{Event, Halt, JobOutcome};
use crate::watch::Totals;

/// Counts of a batch. Each job is counted once.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Jobs that succeeded, in this run or in an earlier one.
    pub succeeded: u64,
    /// Those of them that succeeded in an earlier run.
    pub succeeded_before: u64,
    /// Jobs that failed, in this run or in an earlier one, or can never start.
    pub failed: u64,
    /// Jobs that were not started, because one that they wait for did not succeed.
    pub skipped: u64,
    /// Jobs that were stopped, because the batch ended early.
    pub stopped: u64,
    /// Jobs that were not started, because the batch ended early. Jobs that were not read are not counted.
    pub not_run: u64,
    /// Jobs that run at most once, and may have run.
    pub unknown: u64,
    /// The input was read to its end.
    pub(crate) has_all_jobs: bool,
    /// The reason for an early end.
    pub halted: Option<Halt>,
    /// The error of the input that ended the batch.
    pub input_error: Option<InputError>,
    /// Jobs whose output could not be stored completely. They ran on.
    pub incomplete_outputs: u64,
    /// The first error that cost output of a job.
    pub output_error: Option<OutputError>,
    /// Outputs that were not printed, and are kept beside the log: a resumed batch prints them.
    pub kept_outputs: usize,
    /// Output was discarded, because a reader did not take it in time after a stop.
    pub discarded_output: bool,
    /// Processes that jobs left running, and that were killed.
    pub leftovers_killed: u64,
    /// The first job that could not be started: its number, and the reason.
    pub not_started: Option<(u64, String)>,
    /// The time since the start.
    pub elapsed: Duration,
}

impl Summary {
    pub(super) fn count(&mut self, event: &Event) {
        match event {
            Event::Settled { outcome, before, .. } => {
                *match outcome {
                    JobOutcome::Succeeded => &mut self.succeeded,
                    JobOutcome::Failed | JobOutcome::Refused => &mut self.failed,
                    JobOutcome::Skipped => &mut self.skipped,
                    JobOutcome::Stopped => &mut self.stopped,
                    JobOutcome::NotRun => &mut self.not_run,
                    JobOutcome::Unknown => &mut self.unknown,
                } += 1;
                let is_old = *before && *outcome == JobOutcome::Succeeded;
                self.succeeded_before += u64::from(is_old);
            }
            Event::Ended { end, .. } => {
                self.leftovers_killed += u64::from(end.leftovers_killed);
                // One that an early end has stopped before its start has no reason of its own.
                let is_over = self.halted.is_some();
                if let (AttemptOutcome::NotStarted(reason), false) = (&end.outcome, is_over) {
                    self.not_started.get_or_insert_with(|| (end.key.job, reason.clone()));
                }
            }
            Event::InputEnded { .. } => self.has_all_jobs = true,
            Event::Halted(halt) => self.halted = Some(*halt),
            _ => {}
        }
    }

    /// Returns the exit code of a tool that ran the batch: 0 if all jobs succeeded, 123 if some did not (as xargs), 124 after
    /// the timeout of the batch, 125 after an error of the input, the log or the output, 141 if the reader of the output is gone.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        let Summary { failed, skipped, stopped, not_run, unknown, .. } = self;
        match self.halted {
            _ if self.input_error.is_some() => 125,
            Some(Halt::Timeout) => 124,
            Some(Halt::Log | Halt::Output) => 125,
            Some(Halt::ReaderGone) => 141,
            _ if self.output_error.is_some() => 125,
            // What was wanted is there; the other jobs were not.
            Some(Halt::Successes) => 0,
            // Jobs that were never read have not run either.
            Some(_) if !self.has_all_jobs => 123,
            _ if failed + skipped + stopped + not_run + unknown > 0 => 123,
            _ => 0,
        }
    }

    /// Returns the counts for the reports. `is_closed`: the log and the output were written.
    pub(super) fn totals(&self, how: &'static str, is_closed: bool) -> Totals {
        Totals {
            exit_code: is_closed.then(|| self.exit_code()),
            how,
            succeeded: self.succeeded,
            failed: self.failed,
            skipped: self.skipped,
            stopped: self.stopped,
            not_run: self.not_run,
            unknown: self.unknown,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ok", self.succeeded)?;
        if self.succeeded_before > 0 {
            write!(f, " ({} before)", self.succeeded_before)?;
        }
        write!(f, ", {} failed, {} skipped, {} unknown", self.failed, self.skipped, self.unknown)?;
        for (count, word) in [(self.stopped, "stopped"), (self.not_run, "not run")] {
            if count > 0 {
                write!(f, ", {count} {word}")?;
            }
        }
        write!(f, " in {:.1} s", self.elapsed.as_secs_f64())?;
        match self.halted {
            Some(halt) => write!(f, " ({halt})"),
            None => Ok(()),
        }
    }
}
