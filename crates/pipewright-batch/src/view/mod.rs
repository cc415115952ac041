//! The log of a batch for people and scripts: counts, a table, JSON lines, a page, the output of a job.
//!
//! | file | contents |
//! |---|---|
//! | `rows.rs` | attempts and jobs of the log as rows of a table |
//! | `page.rs` | the page about a batch, from its log |
//! | `output.rs` | the output of a job |

mod output;
mod page;
mod rows;

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use crate::job::JobId;
use crate::journal::read::{AttemptFilter, Log};
use crate::journal::rows::Counts;
use crate::journal::{JobState, LogError};
use crate::watch::{JobRow, write_json, write_table};
pub use output::OutputQueryError;

/// The log of a batch, open for reading. A runner may write to it meanwhile.
///
/// ```
/// use pipewright_batch::{Batch, Job, JobFilter, LogView};
/// # let dir = std::env::temp_dir().join(format!("log-view-doc-{}", std::process::id()));
/// # std::fs::create_dir(&dir)?;
/// # let path = dir.join("run.db");
/// Batch::new().log(&path).run(["true", "false"].map(Job::new))?;
/// let log = LogView::open(&path)?;
/// assert!(log.summary()?.starts_with("2 jobs: 1 succeeded, 1 failed\n"));
/// let mut failed = Vec::new();
/// log.write_json(&JobFilter { state: Some("failed".parse()?), ..JobFilter::default() }, &mut failed)?;
/// assert_eq!(failed.iter().filter(|byte| **byte == b'\n').count(), 1);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LogView {
    log: Log,
}

/// The jobs to list. The default is all.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobFilter {
    /// Only jobs in this state.
    pub state: Option<LoggedState>,
    /// This number of the slowest attempts, slowest first.
    pub slowest: Option<u32>,
}

/// A state that a job can have in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedState(JobState);

impl LoggedState {
    /// Returns the words of all states.
    pub fn names() -> impl Iterator<Item = &'static str> {
        JobState::words()
    }
}

impl std::str::FromStr for LoggedState {
    type Err = String;

    fn from_str(text: &str) -> Result<LoggedState, String> {
        // Tables call a started job so while it has a process.
        let text = if text == "running" { JobState::Started.name() } else { text };
        let state = JobState::ALL.into_iter().find(|state| state.name() == text);
        let names = || LoggedState::names().collect::<Vec<_>>().join(", ");
        state
            .map(LoggedState)
            .ok_or_else(|| format!("no state is called {text:?}; there are {}", names()))
    }
}

impl LogView {
    /// Opens a log.
    ///
    /// # Errors
    /// The file is missing, is no log, is damaged, or is that of a newer version.
    pub fn open(path: impl AsRef<Path>) -> Result<LogView, LogError> {
        Log::open(path.as_ref()).map(|log| LogView { log })
    }

    /// Returns the largest amount of memory that each job has used at one time, in bytes.
    pub(crate) fn peaks(&self) -> Result<HashMap<JobId, u64>, LogError> {
        self.log.peaks()
    }

    /// Writes the command of each job that [`Batch::resume_log`](crate::Batch::resume_log) would start now, one a line,
    /// quoted for a shell.
    ///
    /// # Errors
    /// The log cannot be read or does not have all jobs (then the error is of kind `Other`, and contains a
    /// [`LogError`]), or the writer fails.
    pub fn write_commands_to_run(
        &self,
        retry_failed: bool,
        rerun_unknown: bool,
        writer: &mut impl Write,
    ) -> io::Result<()> {
        let mut written = Ok(());
        let read = self.log.for_each_to_run(retry_failed, rerun_unknown, |mut command| {
            command.push(b'\n');
            written = writer.write_all(&command);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        read.map_err(io::Error::other)?;
        written
    }

    /// Returns the [note](crate::Batch::note_input) of the last run.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn input(&self) -> Result<Option<String>, LogError> {
        self.log.input()
    }

    /// Returns a few lines about the batch: counts, its runs, and outputs that a power cut has taken.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn summary(&self) -> Result<String, LogError> {
        let mut text = format!("{}\n", counts_line(&self.log.counts()?));
        for run in self.log.runs()? {
            let how = match (&run.how, run.ended) {
                (Some(how), _) => how.clone(),
                (None, Some(_)) => "ended".to_owned(),
                (None, None) => "runs, or was killed".to_owned(),
            };
            let time = run
                .ended
                .map_or(String::new(), |ended| format!(" after {:.1} s", ended - run.started));
            text.push_str(&format!("run {}: {how}{time}, {} slots\n", run.number, run.slots));
        }
        for lost in self.log.lost_outputs()? {
            text.push_str(&format!("{lost}\n"));
        }
        Ok(text)
    }

    /// Writes a table. `width` is that of the terminal; `None`: as wide as the commands.
    ///
    /// # Errors
    /// The log cannot be read (then the error is of kind `Other`, and contains a [`LogError`]), or the writer fails.
    pub fn write_table(
        &self,
        filter: &JobFilter,
        width: Option<usize>,
        writer: &mut impl Write,
    ) -> io::Result<()> {
        let mut has_heading = false;
        self.for_each_part(filter, |rows| {
            let heading = !std::mem::replace(&mut has_heading, true);
            write_table(rows, width, heading, writer)
        })
    }

    /// Writes JSON lines: see `docs/json.md`.
    ///
    /// # Errors
    /// As for [`write_table`](Self::write_table).
    pub fn write_json(&self, filter: &JobFilter, writer: &mut impl Write) -> io::Result<()> {
        self.for_each_part(filter, |rows| write_json(rows, writer))
    }

    /// Returns the number of attempts that have ended so far, for [`write_new`](Self::write_new).
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn position(&self) -> Result<u64, LogError> {
        Ok(self.log.last_attempt()?.unwrap_or(0))
    }

    /// Writes the attempts that have ended since that position as lines of a table. Returns the new position, and
    /// whether the batch runs.
    ///
    /// # Errors
    /// As for [`write_table`](Self::write_table).
    pub fn write_new(
        &self,
        position: u64,
        width: Option<usize>,
        writer: &mut impl Write,
    ) -> io::Result<(u64, bool)> {
        // Before the attempts: those of a run that ends in between are still read.
        let runs = self.log.runs().map_err(io::Error::other)?;
        let is_running = runs.last().is_some_and(|run| run.ended.is_none());
        let filter = AttemptFilter { after: Some(position), ..AttemptFilter::default() };
        let (mut new, mut written) = (position, Ok(()));
        let read = self.log.for_each_attempt(&filter, |attempt| {
            new = attempt.row;
            written = write_table(&[rows::of_attempt(&attempt)], width, false, writer);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        read.map_err(io::Error::other)?;
        written.map(|()| (new, is_running))
    }

    /// Calls the function for some rows at a time.
    fn for_each_part(
        &self,
        filter: &JobFilter,
        mut each: impl FnMut(&[JobRow]) -> io::Result<()>,
    ) -> io::Result<()> {
        const PART: usize = 256;
        // A row of a log that somebody else has made may be long.
        const PART_BYTES: usize = 1 << 20;
        let mut part = Vec::with_capacity(PART);
        let mut bytes = 0;
        let mut written = Ok(());
        let mut add = |row: JobRow| {
            bytes += row.command.len() + row.reason.as_ref().map_or(0, String::len);
            part.push(row);
            if part.len() == PART || bytes > PART_BYTES {
                written = each(&part);
                part.clear();
                bytes = 0;
            }
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let read = match filter.slowest {
            Some(count) => {
                let state = filter.state.map(|state| state.0);
                let filter =
                    AttemptFilter { state, slowest: Some(count), ..AttemptFilter::default() };
                self.log.for_each_attempt(&filter, |attempt| add(rows::of_attempt(&attempt)))
            }
            None => rows::for_each_job(&self.log, filter.state.map(|state| state.0), add),
        };
        read.map_err(io::Error::other)?;
        written?;
        each(&part)
    }
}

fn counts_line(counts: &Counts) -> String {
    let word = |(word, count): (&str, u64)| format!("{count} {}", word.replace('_', " "));
    let states: Vec<String> = counts.by_state().map(word).collect();
    let jobs = if counts.jobs == 1 { "job" } else { "jobs" };
    match states.is_empty() {
        true => format!("{} {jobs}", counts.jobs),
        false => format!("{} {jobs}: {}", counts.jobs, states.join(", ")),
    }
}
