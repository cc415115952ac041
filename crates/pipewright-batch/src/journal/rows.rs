//! Rows of the log as plain values. Times are in seconds since 1970.

use std::collections::HashMap;

use rusqlite::Row;
use rusqlite::types::{Type, ValueRef};

use super::JobState;
use super::ledger::{duration, system_time};
use crate::job::JobId;
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome};

/// The batch of a log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BatchRow {
    pub(crate) id: String,
    pub(crate) created: f64,
    pub(crate) tool_version: String,
    pub(crate) description: String,
}

/// A run: a process that has run jobs of the batch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunRow {
    pub(crate) number: u32,
    pub(crate) started: f64,
    /// `None`: it runs, or was killed.
    pub(crate) ended: Option<f64>,
    pub(crate) how: Option<String>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) slots: u32,
    pub(crate) pid: u32,
    pub(crate) host: Option<String>,
    pub(crate) current_dir: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobRow {
    /// The row in the table `jobs`.
    pub(crate) row: u32,
    pub(crate) id: JobId,
    /// The number in the input of the run that noted it last.
    pub(crate) number: u64,
    pub(crate) line: Option<u64>,
    pub(crate) name: Option<String>,
    /// The command, quoted for a shell. Bytes that are not UTF-8 are replaced.
    pub(crate) command: String,
    pub(crate) current_dir: Option<String>,
    pub(crate) state: JobState,
    pub(crate) reason: Option<String>,
    /// The row of its last attempt in the table `attempts`.
    pub(crate) last_attempt: Option<u64>,
}

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AttemptRow {
    /// The row in the table `attempts`, in the order of the ends.
    pub(crate) row: u64,
    pub(crate) job: JobRow,
    pub(crate) run: u32,
    pub(crate) slot: Option<u32>,
    /// Its key has the number of its job in the last input that had it.
    pub(crate) end: AttemptEnd,
    pub(crate) output_path: Option<String>,
    pub(crate) stderr_tail: Option<String>,
}

/// An attempt that was intended and has not ended: it runs now, unless its runner was killed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunningRow {
    pub(crate) job: JobRow,
    pub(crate) run: u32,
    pub(crate) attempt: u32,
    pub(crate) slot: Option<u32>,
    pub(crate) since: f64,
}

/// The number of jobs by state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) jobs: u64,
    /// Started jobs that have a process now.
    pub(crate) running: u64,
    /// By the word of the state.
    pub(super) states: HashMap<&'static str, u64>,
}

impl Counts {
    pub(crate) fn add(&mut self, state: &str, count: u64) {
        self.jobs += count;
        // A newer version may have other words.
        if let Some(word) = JobState::words().find(|word| *word == state) {
            *self.states.entry(word).or_default() += count;
        }
    }

    /// Returns the states that jobs are in, in the order of reports: the word and the number of jobs.
    pub(crate) fn by_state(&self) -> impl Iterator<Item = (&'static str, u64)> {
        JobState::words().filter_map(|word| Some((word, *self.states.get(word)?)))
    }
}

/// The columns of a [`JobRow`], in its order.
pub(super) const JOB_COLUMNS: &str = "jobs.id, jobs.identity, jobs.number, jobs.line, jobs.name, jobs.command, \
    jobs.cwd, jobs.state, \
     jobs.failure, jobs.reason, jobs.last_attempt";

/// The number of those columns.
const JOB_WIDTH: usize = 11;

/// The columns of an [`AttemptRow`] after those of its job. A column with the node follows: see [`node_column`].
pub(super) const ATTEMPT_COLUMNS: &str = "attempts.id, attempts.run, attempts.attempt, attempts.slot, \
    attempts.started, \
     attempts.elapsed_seconds, attempts.outcome, attempts.code, attempts.signal, attempts.user_seconds, \
     attempts.system_seconds, attempts.peak_rss_bytes, attempts.stdout_bytes, attempts.stderr_bytes, \
     attempts.leftovers_killed, attempts.error, attempts.output_path, attempts.stderr_tail";

/// Returns the expression for the node of an attempt. Logs before version 3 have none.
pub(super) fn node_column(version: i64) -> &'static str {
    match version {
        ..=2 => "NULL",
        _ => "attempts.node",
    }
}

impl JobRow {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
        let identity: [u8; 16] = row.get(1)?;
        let (state, failure): (String, Option<String>) = (row.get(7)?, row.get(8)?);
        let known = JobState::parse(&state, failure.as_deref()).ok_or_else(|| {
            let unknown = format!("a newer version has written the state {state:?}");
            rusqlite::Error::FromSqlConversionFailure(7, Type::Text, unknown.into())
        })?;
        Ok(JobRow {
            row: row.get(0)?,
            id: JobId::from_bytes(identity),
            number: unsigned(row, 2)?.unwrap_or(0),
            line: unsigned(row, 3)?,
            name: text(row, 4)?,
            command: text(row, 5)?.unwrap_or_default(),
            current_dir: text(row, 6)?,
            state: known,
            reason: text(row, 9)?,
            last_attempt: unsigned(row, 10)?,
        })
    }
}

impl AttemptRow {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<AttemptRow> {
        let at = |index: usize| JOB_WIDTH + index;
        let job = JobRow::from_row(row)?;
        let key = AttemptKey { job: job.number, attempt: row.get(at(2))? };
        let word: String = row.get(at(6))?;
        let outcome =
            AttemptOutcome::of_words(&word, row.get(at(7))?, row.get(at(8))?, text(row, at(15))?);
        // A word of a newer version: how it ended is not known here.
        let outcome = outcome.unwrap_or_else(|| AttemptOutcome::Lost(word.replace('_', " ")));
        let time =
            |index| Ok::<_, rusqlite::Error>(row.get::<_, Option<f64>>(at(index))?.map(duration));
        let elapsed = time(5)?.unwrap_or_default();
        let mut end = AttemptEnd::new(key, outcome, system_time(row.get(at(4))?), elapsed);
        (end.user, end.system) = (time(9)?, time(10)?);
        end.peak_rss_bytes = unsigned(row, at(11))?;
        end.stdout_bytes = unsigned(row, at(12))?.unwrap_or(0);
        end.stderr_bytes = unsigned(row, at(13))?.unwrap_or(0);
        end.leftovers_killed = row.get(at(14))?;
        end.node = text(row, at(18))?;
        Ok(AttemptRow {
            job,
            row: unsigned(row, at(0))?.unwrap_or(0),
            run: row.get(at(1))?,
            slot: row.get(at(3))?,
            end,
            output_path: text(row, at(16))?,
            stderr_tail: text(row, at(17))?,
        })
    }
}

impl RunningRow {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<RunningRow> {
        Ok(RunningRow {
            job: JobRow::from_row(row)?,
            run: row.get(JOB_WIDTH)?,
            attempt: row.get(JOB_WIDTH + 1)?,
            slot: row.get(JOB_WIDTH + 2)?,
            since: row.get(JOB_WIDTH + 3)?,
        })
    }
}

/// Returns a text, or a blob that is text but for some bytes.
fn text(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(index)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        _ => None,
    })
}

pub(super) fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(index)?.and_then(|number| u64::try_from(number).ok()))
}
