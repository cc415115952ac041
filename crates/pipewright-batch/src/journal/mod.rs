//! The log of a batch: what is about to run, how it ended, durable, and readable while it is written.
//!
//! The log is a SQLite file; docs/batch-log.md describes its tables. One thread writes it: it takes all changes that
//! are pending, commits them in one transaction, and takes the next ones. A commit begins at once if the last one began
//! more than 10 ms ago or an intent is awaited. Otherwise it waits until then, so that jobs which take less time share
//! commits.
//!
//! **Driver.** One thread calls [`Journal`]. Calls only collect changes; [`Journal::submit`] hands them to the writer.
//! The changes between two calls of `submit` are committed together: an end of an attempt and the decision about its
//! job belong in one. Reports come back through [`Journal::next_report`], after a call of the waker.
//!
//! **Failure.** If a commit fails, everything is kept in order and repeated until it is durable, and nothing waits for
//! it. Start no job between [`Report::Failed`] and [`Report::Works`].
//!
//! **A crash** at any time leaves the log as after some commit. An attempt that the log has as running then is
//! `interrupted`, or `unknown` if its job must not run twice. Most intents become durable after the start of their job:
//! a job that has just started may be missing in the log.
//!
//! | file | contents |
//! |---|---|
//! | `ledger.rs`, `changes.rs` | from calls to changes of rows; states of jobs |
//! | `writer.rs` | from the driver to the thread that writes; group commit, failures, outputs before their ends |
//! | `sqlite.rs` | what is written to: SQLite; tables and their versions |
//! | `open.rs`, `past.rs` | creation, resumption, jobs of earlier runs |
//! | `runner.rs` | one writer; outputs of a killed one that a power cut has taken |
//! | `survivors.rs` | processes of a killed run that are still alive |
//! | `files.rs` | files beside the log that cannot be trusted; files that are no log; damage |
//! | `read.rs`, `rows.rs` | the log as others read it, or as a run without its input does |
//! | `page.rs` | the log as its page shows it |
//! | `error.rs` | errors |

mod changes;
mod error;
mod files;
mod ledger;
mod open;
mod page;
mod past;
pub(crate) mod read;
pub(crate) mod rows;
mod runner;
mod sqlite;
mod survivors;
#[cfg(test)]
mod tests;
mod writer;

#[cfg(test)]
pub(crate) use tests::watched;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::vocabulary::{AttemptKey, JobOutcome};
pub use error::{LogError, LogErrorKind};
pub(crate) use ledger::{Intent, JobState, LoggedJob, LoggedOutput, system_time};
pub(crate) use past::{Past, PastJob};
pub(crate) use survivors::{BATCH_VARIABLE, RUN_VARIABLE, end_survivors};
pub(crate) use writer::LostOutput;

use changes::Process;
use ledger::Ledger;
use pipewright_os::base::private_file::{Facts, PrivateLock};
use pipewright_os::process::open::start_time;
use writer::Queue;

/// The changes from which on [`Journal::submit_if_large`] hands them to the writer.
const MOST_COLLECTED_BYTES: usize = 64 << 10;

/// The function that the writer calls when there is a report. It must not block.
pub(crate) type Waker = Box<dyn Fn() + Send + Sync>;

/// The end of a run that has lost its executor, as a word of the log.
pub(crate) const ABANDONED: &str = "failed";

/// The facts of a run that the log keeps.
#[derive(Debug, Clone)]
pub(crate) struct RunFacts {
    /// The input and the command, for people. Kept when the log is created.
    pub(crate) description: String,
    /// The version of the tool. Kept when the log is created.
    pub(crate) tool_version: String,
    /// The number of slots.
    pub(crate) slots: u32,
    /// A text with which the caller can read the input again.
    pub(crate) input: Option<String>,
    /// The jobs are those of the log.
    pub(crate) from_log: bool,
    /// The log keeps the values that tag lines of output.
    pub(crate) keep_values: bool,
    /// The jobs run on other machines.
    pub(crate) remote: bool,
    /// The log of another user is resumed, and one that others may write.
    pub(crate) trust_log: bool,
}

/// A report of the writer.
#[derive(Debug)]
pub(crate) enum Report {
    /// The intent of this attempt is durable. Only intents with [`Intent::durable`] are reported.
    Durable(AttemptKey),
    /// A job succeeded, and its output is lost: the log does not have it as a success.
    LostOutput(LostOutput),
    /// The log cannot be written now.
    Failed(LogError),
    /// The log can be written again, and holds everything up to the last `submit`.
    Works,
}

/// The way in which changes become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalMode {
    /// A write-ahead log: the fast one.
    WriteAhead,
    /// A rollback journal, because the filesystem shares no memory between processes.
    Rollback,
    /// A rollback journal, because the log is on a network filesystem.
    RollbackOnNetwork,
}

/// The log of a batch, open for its runner.
///
/// # Drop
/// Writes what was submitted, tries once more if that fails, and does not write the end of the run: the log says that
/// it was interrupted.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Collects what is about to run and how it ended.
    pub(crate) ledger: Ledger,
    queue: Arc<Queue>,
    writer: Option<JoinHandle<Result<(), LogError>>>,
    pub(crate) path: PathBuf,
    facts: Facts,
    /// The random identity of the batch, 32 hexadecimal digits, which all its runs share.
    pub(crate) batch_id: String,
    pub(crate) run_id: String,
    /// The identities of the earlier runs. `None`: an older version has not written all of them.
    pub(crate) earlier_runs: Option<Vec<String>>,
    /// The number of this run, from 1.
    pub(crate) run: u32,
    pub(crate) mode: JournalMode,
    /// The last runner was killed while nodes ran its jobs. They end them when they miss it.
    pub(crate) left_nodes: bool,
    /// The processes of earlier runs that were alive, and have been killed.
    pub(crate) killed: BTreeSet<u32>,
    /// A line for each job that is ok, and whose output a power cut has taken.
    pub(crate) lost_outputs: Vec<String>,
    /// Released after the writer has ended.
    _lock: PrivateLock,
}

impl Journal {
    /// Calls the function before each commit, on the thread that writes. Only the first one counts.
    pub(crate) fn keep_outputs(&self, keeper: Arc<dyn Fn() + Send + Sync>) {
        self.queue.keep_outputs(keeper);
    }

    /// Notes the number of the process of an attempt that runs. A resumed batch looks if it still does.
    pub(crate) fn runs_as(&mut self, key: AttemptKey, pid: u32) {
        // Without one, it could not be told from a later process with that number.
        if let Some(start) = start_time(pid) {
            self.ledger.runs_as(key, Process { pid, start });
        }
    }

    /// Notes the final state of a job, also of one that was never started. `reason` is one line for people.
    ///
    /// While the log fails and much is kept already, jobs that were not started are left out: a resumed batch treats a
    /// job that the log does not have in the same way.
    ///
    /// Returns the end of an earlier run if that stands: another attempt was to run, and has not begun.
    pub(crate) fn settled(
        &mut self,
        job: &LoggedJob<'_>,
        state: JobState,
        reason: Option<&str>,
    ) -> Option<JobOutcome> {
        let may_be_left_out =
            matches!(state.outcome(), Some(JobOutcome::NotRun | JobOutcome::Skipped));
        if may_be_left_out && !self.ledger.has(job) && self.queue.is_overdue() {
            return None;
        }
        self.ledger.settled(job, state, reason)
    }

    /// Notes a job that waits for its start, if the log does not have it. A batch without its input can then run it.
    pub(crate) fn waits(&mut self, job: &LoggedJob<'_>) {
        self.ledger.waits(job);
        self.submit_if_large();
    }

    /// Notes that the input has a job of an earlier run. Its number, its name and its settings are those of this input,
    /// also if it never runs again: other jobs refer to the name.
    pub(crate) fn is_in_input(&mut self, past: &PastJob, job: &LoggedJob<'_>) {
        let is_the_same = past.state == JobState::SUCCEEDED && past.is_described_as(job);
        if past.is_removed || !is_the_same {
            self.ledger.describe(past.row, job);
        }
    }

    /// Notes that the input has ended, and had that many jobs. The others are not part of the batch any more.
    pub(crate) fn input_ended(&mut self, jobs: u64, removed: impl Iterator<Item = PastJob>) {
        for job in removed.filter(|job| !job.is_removed) {
            self.ledger.remove(job.row);
            self.submit_if_large();
        }
        self.ledger.end_input(jobs);
    }

    /// Hands the changes to the writer. Call it after each event, when all its consequences are noted.
    ///
    /// Waits while the writer is far behind, unless the log fails.
    pub(crate) fn submit(&mut self) {
        self.queue.put(self.ledger.take());
    }

    /// Returns the next report, if there is one.
    pub(crate) fn next_report(&mut self) -> Option<Report> {
        self.queue.next_report()
    }

    /// Writes the end of the run and everything before it, and closes the log. `how` is a word such as `finished` or
    /// `stopped`.
    ///
    /// # Errors
    /// The log could not be written, also not at a second try: it is as after some earlier commit. Or it is not there
    /// any more.
    pub(crate) fn close(mut self, exit_code: Option<i32>, how: &str) -> Result<(), LogError> {
        self.ledger.end_run(exit_code, how);
        self.submit();
        self.end_writer()?;
        let is_gone = match Facts::look(&self.path) {
            Ok(found) => found.is_none_or(|found| found.is_another(&self.facts)),
            // That says nothing about it.
            Err(_) => false,
        };
        // Everything was written, to a file that has another name or none.
        if is_gone { Err(LogError::new(&self.path, LogErrorKind::Gone)) } else { Ok(()) }
    }

    /// Submits if much is collected. Call it when all consequences of all events are noted: what is submitted may be
    /// durable without the rest.
    pub(crate) fn submit_if_large(&mut self) {
        if self.ledger.changes.bytes() >= MOST_COLLECTED_BYTES {
            self.submit();
        }
    }

    fn end_writer(&mut self) -> Result<(), LogError> {
        self.queue.close();
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let ended = writer.join();
        ended.unwrap_or_else(|_| Err(LogError::new(&self.path, LogErrorKind::WriterEnded)))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Ignored: there is nobody to report it to. `close` reports it.
        let _ = self.end_writer();
    }
}
