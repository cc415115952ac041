//! Tests of the log, with real files, processes and disks.

mod act;
#[cfg(target_os = "linux")]
mod crash_states;
mod failing;
mod measure;
mod opening;
mod reading;
mod resume;
mod simulation;
#[cfg(unix)]
mod trust;
pub(crate) mod watched;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, UNIX_EPOCH};

use pipewright_os::base::skipped::{Need, skipped};
use tempfile::TempDir;

use super::read::{AttemptFilter, Log};
use super::rows::{AttemptRow, JobRow};
use super::*;
use crate::job::{Job, JobId};
use crate::vocabulary::{AttemptEnd, AttemptOutcome};

/// A folder for a log, removed at the end of the test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn log(&self) -> PathBuf {
        self.0.path().join("run.db")
    }
}

fn facts() -> RunFacts {
    let (description, tool_version) = ("true {}".to_owned(), "1.2.3".to_owned());
    RunFacts {
        remote: false,
        description,
        tool_version,
        slots: 4,
        input: None,
        from_log: false,
        keep_values: false,
        trust_log: false,
    }
}

fn no_waker() -> Waker {
    Box::new(|| {})
}

fn create(path: &Path) -> Journal {
    Journal::create(path, &facts(), no_waker()).unwrap()
}

fn resume(path: &Path) -> (Journal, Past) {
    Journal::resume(path, &facts(), no_waker()).unwrap()
}

fn job(number: u64) -> Job {
    Job::new("job").arg(number.to_string())
}

fn logged(number: u64, job: &Job) -> LoggedJob<'_> {
    LoggedJob { number, id: JobId::new(job, 0), job, once: false }
}

fn intent(job: LoggedJob<'_>, attempt: u32) -> Intent<'_> {
    Intent { job, attempt, slot: Some(1), durable: false }
}

fn end(job: u64, attempt: u32, outcome: AttemptOutcome) -> AttemptEnd {
    let started = UNIX_EPOCH + Duration::from_millis(1_700_000_000_500 + job);
    AttemptEnd::new(AttemptKey { job, attempt }, outcome, started, Duration::from_millis(job))
}

/// Notes a job that starts and succeeds.
fn succeed(journal: &mut Journal, number: u64) {
    let job = job(number);
    journal.ledger.intend(&intent(logged(number, &job), 1));
    journal.ledger.ended(&end(number, 1, AttemptOutcome::Exited(0)), LoggedOutput::default());
    journal.settled(&logged(number, &job), JobState::SUCCEEDED, None);
}

fn all_jobs(log: &Log) -> Vec<JobRow> {
    let mut all = Vec::new();
    log.for_each_job(None, |job| {
        all.push(job);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    all
}

fn attempts(log: &Log, filter: &AttemptFilter) -> Vec<AttemptRow> {
    let mut all = Vec::new();
    log.for_each_attempt(filter, |attempt| {
        all.push(attempt);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// Checks the file, and that no row refers to one that is missing.
fn check_whole(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let answer = connection.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    assert_eq!(answer.unwrap(), "ok");
    let mut check = connection.prepare("PRAGMA foreign_key_check").unwrap();
    assert!(check.query([]).unwrap().next().unwrap().is_none(), "a row refers to a missing one");
}

/// Runs a program that the machine may not have. `None`, with a message, if it has not.
fn installed(command: &mut Command) -> Option<Output> {
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skipped(Need::Program(&command.get_program().to_string_lossy()), "is not here");
            None
        }
        output => Some(output.unwrap()),
    }
}
