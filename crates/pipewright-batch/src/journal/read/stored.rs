//! The jobs of a log, made again.

use std::ops::ControlFlow;

use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Row, params};

use super::Log;
use crate::job::stored::StoredJob;
use crate::job::{Job, JobId};
use crate::journal::completeness;
use crate::journal::schema::{self, UNKNOWN_SETTINGS};
use crate::journal::{JobState, LogError, LogErrorKind};
use crate::vocabulary::JobOutcome;

/// A job of the log, and the number that it has in a run without an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Numbered {
    pub(crate) number: u32,
    pub(crate) row: u32,
}

impl Log {
    /// Returns all jobs of the batch, without those that the last input did not have, in the order of the input: 12 bytes a job
    /// while they are read.
    ///
    /// A job has the number that it had, unless jobs of an earlier input have the same one. Then it goes to one that is not over,
    /// and the others follow after all jobs.
    ///
    /// # Errors
    /// The log cannot be read, or is damaged.
    pub(crate) fn numbered(&self) -> Result<Vec<Numbered>, LogError> {
        let query = "SELECT number, state = ?1, id FROM jobs WHERE removed IS NULL";
        let job = |row: &Row<'_>| Ok((row.get::<_, u32>(0)?, row.get::<_, bool>(1)?, row.get(2)?));
        let mut jobs: Vec<(u32, bool, u32)> =
            self.list(query, [JobState::SUCCEEDED.name()], job)?;
        jobs.sort_unstable();
        let last = jobs.last().map_or(0, |(number, ..)| *number);
        let (mut numbered, mut others) = (Vec::with_capacity(jobs.len()), Vec::new());
        let mut previous = 0;
        for (number, _, row) in jobs {
            match number > previous {
                true => numbered.push(Numbered { number, row }),
                false => others.push(row),
            }
            previous = number;
        }
        for (row, number) in others.into_iter().zip(last.saturating_add(1)..) {
            numbered.push(Numbered { number, row });
        }
        Ok(numbered)
    }

    /// Calls the function with the command of each job that a run without an input would start now, until it breaks. The command
    /// is quoted for a shell.
    ///
    /// # Errors
    /// The log cannot be read, or does not have all jobs.
    pub(crate) fn for_each_to_run(
        &self,
        retry_failed: bool,
        rerun_unknown: bool,
        each: impl FnMut(Vec<u8>) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        completeness::check(&self.connection, &self.path)?;
        // A `once` job that runs in a killed runner is unknown when the batch is resumed.
        let query = "SELECT command FROM jobs LEFT JOIN running ON running.job = jobs.id \
                     WHERE removed IS NULL AND state <> ?3 AND (?1 OR state <> ?4) \
                     AND (?2 OR NOT (state = ?5 OR coalesce(once, 0))) ORDER BY number, jobs.id";
        let [succeeded, failed, unknown] =
            [JobOutcome::Succeeded, JobOutcome::Failed, JobOutcome::Unknown].map(JobOutcome::name);
        let states = params![retry_failed, rerun_unknown, succeeded, failed, unknown];
        let command = |row: &Row<'_>| Ok(bytes(row.get_ref(0)?).unwrap_or_default());
        self.for_each(query, states, command, each)
    }

    /// Returns the note of the last run, which says how its input can be read again.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn input(&self) -> Result<Option<String>, LogError> {
        let read = || match schema::version(&self.connection)? {
            ..=1 => Ok(None),
            _ => {
                let query = "SELECT input FROM runs ORDER BY number DESC LIMIT 1";
                let input = self.connection.query_row(query, [], |row| row.get(0)).optional();
                input.map(Option::flatten)
            }
        };
        read().map_err(|error| self.error(error))
    }

    /// Returns jobs, all as of one moment.
    ///
    /// # Errors
    /// The log cannot be read, or is damaged.
    pub(crate) fn stored(&self, jobs: &[Numbered]) -> Result<Vec<Job>, LogError> {
        self.guard.begin(&self.connection).map_err(|error| self.error(error))?;
        self.execute("BEGIN")?;
        let read = jobs.iter().map(|numbered| self.stored_job(*numbered)).collect();
        self.execute("COMMIT")?;
        read
    }

    fn stored_job(&self, Numbered { number, row }: Numbered) -> Result<Job, LogError> {
        let query = "SELECT identity, line, name, state = ?2, command, cwd, settings FROM jobs WHERE id = ?1";
        let read = || -> rusqlite::Result<Option<(JobId, Job)>> {
            let mut query = self.connection.prepare_cached(query)?;
            query.query_row(params![row, JobState::SUCCEEDED.name()], stored)
        };
        let read = read().map_err(|error| self.error(error))?;
        let (id, job) = read.ok_or_else(|| LogError::new(&self.path, LogErrorKind::Corrupt))?;
        Ok(job.logged_as(id, number.into()))
    }

    fn execute(&self, statement: &str) -> Result<(), LogError> {
        self.connection.execute_batch(statement).map_err(|error| self.error(error))
    }
}

/// Returns the job of a row. `None`: no version has written that.
fn stored(row: &Row<'_>) -> rusqlite::Result<Option<(JobId, Job)>> {
    let identity = row.get_ref(0)?.as_blob().ok().and_then(|bytes| bytes.try_into().ok());
    let line = row.get::<_, Option<i64>>(1)?.map_or(0, i64::unsigned_abs);
    let name: Option<String> = row.get(2)?;
    let is_over: bool = row.get(3)?;
    let job = if is_over {
        // It never runs again, and an older version may have written it. Other jobs refer to its name.
        let job = Job::new("");
        Some(name.into_iter().fold(job, Job::name))
    } else {
        let settings: Option<String> = row.get(6)?;
        let is_known = settings.as_deref() != Some(UNKNOWN_SETTINGS);
        let (Some(command), current_dir) = (bytes(row.get_ref(4)?), bytes(row.get_ref(5)?)) else {
            return Ok(None);
        };
        is_known
            .then_some(StoredJob { name, command, current_dir, settings })
            .and_then(StoredJob::job)
    };
    let id = identity.map(JobId::from_bytes);
    Ok(id.zip(job.map(|job| job.on_line(line))))
}

fn bytes(value: ValueRef<'_>) -> Option<Vec<u8>> {
    value.as_bytes().ok().map(<[u8]>::to_vec)
}
