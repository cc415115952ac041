//! Updates for the tests of all reports.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{BatchFacts, Totals, Update};
use crate::executor::{AttemptEnd, AttemptKey, AttemptOutcome};
use crate::vocabulary::JobOutcome;

/// Returns the time that many seconds after the start of the batch.
pub(super) fn at(seconds: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000) + Duration::from_secs_f64(seconds)
}

pub(super) fn facts() -> BatchFacts {
    BatchFacts {
        command: "pipewright batch -j 4 --log run.db ./convert {}".to_owned(),
        slots: 4,
        started: at(0.0),
        log: Some("run.db".to_owned()),
    }
}

pub(super) fn key(job: u64) -> AttemptKey {
    AttemptKey { job, attempt: 1 }
}

pub(super) fn end(job: u64, outcome: AttemptOutcome, start: f64, seconds: f64) -> AttemptEnd {
    AttemptEnd::new(key(job), outcome, at(start), Duration::from_secs_f64(seconds))
}

/// Calls `work` with one update of each kind.
pub(super) fn every_update(work: impl FnOnce(&[Update<'_>])) {
    let facts = facts();
    let totals = Totals {
        exit_code: Some(123),
        how: "finished",
        succeeded: 9,
        failed: 1,
        skipped: 0,
        stopped: 0,
        not_run: 0,
        unknown: 0,
    };
    let end = end(2, AttemptOutcome::Exited(7), 0.5, 2.0);
    work(&[
        Update::Began(&facts),
        Update::Resumed { jobs: 3 },
        Update::Added { jobs: 10, total: Some(10) },
        Update::Started { key: key(2), slot: 1, text: "./convert b" },
        Update::Ended { end: &end, text: "./convert b", last_lines: "no such file" },
        Update::Retried { job: 2 },
        Update::Settled { job: 2, outcome: JobOutcome::Failed, reason: Some("exit 7") },
        Update::Halted { cause: "drain" },
        Update::Capacity { slots: 8 },
        Update::InputEnded { total: 10 },
        Update::Note("the log is on a network filesystem"),
        Update::Finished(&totals),
    ]);
}
