//! The questions that `pipewright jobs` asks a log.

use std::ops::ControlFlow;

use rusqlite::{OptionalExtension, Params, Row, params};

use super::Log;
use super::rows::{
    ATTEMPT_COLUMNS, AttemptRow, BatchRow, Counts, JOB_COLUMNS, JobRow, RunRow, RunningRow,
    node_column, unsigned,
};
use crate::journal::lost;
use crate::journal::runner::Runner;
use crate::journal::{JobState, LogError};

/// Attempts to list. All that are set apply.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AttemptFilter {
    /// Only the last attempts of jobs in this state. The class of a failure does not matter.
    pub(crate) state: Option<JobState>,
    /// Only attempts that did not exit with 0.
    pub(crate) failed: bool,
    /// Only attempts after this row, which the last answer ended with: to follow a log while it is written.
    pub(crate) after: Option<u64>,
    /// This number of the slowest, slowest first. `None`: all, in the order of their ends.
    pub(crate) slowest: Option<u32>,
}

/// A job, as people name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobQuery<'a> {
    /// The first hexadecimal digits of its identity.
    Identity(&'a str),
    /// Its number in the input.
    Number(u64),
    /// Its name.
    Name(&'a str),
}

impl Log {
    /// Returns the facts of the batch.
    ///
    /// # Errors
    /// The log cannot be read, here and below.
    pub(crate) fn batch(&self) -> Result<BatchRow, LogError> {
        let query = "SELECT id, created, tool_version, description FROM batch";
        let batch = self.connection.query_row(query, [], |row| {
            Ok(BatchRow {
                id: row.get(0)?,
                created: row.get(1)?,
                tool_version: row.get(2)?,
                description: row.get(3)?,
            })
        });
        batch.map_err(|error| self.error(error))
    }

    /// Returns the command and the input of the last run that had some.
    pub(crate) fn last_command(&self) -> Result<String, LogError> {
        Runner::last_command(&self.connection).map_err(|error| self.error(error))
    }

    /// Returns a line for each job that is ok, and whose output a power cut has taken.
    pub(crate) fn lost_outputs(&self) -> Result<Vec<String>, LogError> {
        lost::lost(&self.connection).map_err(|error| self.error(error))
    }

    /// Returns the runs, in order.
    pub(crate) fn runs(&self) -> Result<Vec<RunRow>, LogError> {
        let query = "SELECT number, started, ended, how, exit_code, slots, pid, host, cwd FROM runs ORDER BY number";
        let run = |row: &Row<'_>| {
            Ok(RunRow {
                number: row.get(0)?,
                started: row.get(1)?,
                ended: row.get(2)?,
                how: row.get(3)?,
                exit_code: row.get(4)?,
                slots: row.get(5)?,
                pid: row.get(6)?,
                host: row.get(7)?,
                current_dir: row.get(8)?,
            })
        };
        self.list(query, [], run)
    }

    /// Returns the number of jobs by state, all from one moment.
    pub(crate) fn counts(&self) -> Result<Counts, LogError> {
        let query = "SELECT state, count(*) FROM jobs GROUP BY state \
                     UNION ALL SELECT NULL, count(*) FROM running";
        let count =
            |row: &Row<'_>| Ok((row.get::<_, Option<String>>(0)?, unsigned(row, 1)?.unwrap_or(0)));
        let mut counts = Counts::default();
        for (state, count) in self.list(query, [], count)? {
            match state {
                Some(state) => counts.add(&state, count),
                None => counts.running = count,
            }
        }
        Ok(counts)
    }

    /// Calls the function for each job in this state, or in any, in the order of the log, until it breaks. The
    /// class of a failure does not matter.
    pub(crate) fn for_each_job(
        &self,
        state: Option<JobState>,
        each: impl FnMut(JobRow) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        let query =
            format!("SELECT {JOB_COLUMNS} FROM jobs WHERE ?1 IS NULL OR state = ?1 ORDER BY id");
        self.for_each(&query, [state.map(JobState::name)], JobRow::from_row, each)
    }

    /// Calls the function for each attempt of the filter, until it breaks.
    pub(crate) fn for_each_attempt(
        &self,
        filter: &AttemptFilter,
        each: impl FnMut(AttemptRow) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        let order = match filter.slowest {
            Some(_) => "attempts.elapsed_seconds DESC, attempts.id",
            None => "attempts.id",
        };
        let node = self.node_column()?;
        let query = format!(
            "SELECT {JOB_COLUMNS}, {ATTEMPT_COLUMNS}, {node} FROM attempts JOIN jobs ON jobs.id = attempts.job \
             WHERE attempts.id > ?1 \
             AND (?2 IS NULL OR (jobs.state = ?2 AND jobs.last_attempt = attempts.id)) \
             AND (NOT ?3 OR attempts.outcome <> 'exited' OR attempts.code <> 0) \
             ORDER BY {order} LIMIT ?4"
        );
        let after = filter.after.map_or(0, crate::journal::sqlite::signed);
        // A negative limit is none.
        let limit = filter.slowest.map_or(-1, i64::from);
        let values = params![after, filter.state.map(JobState::name), filter.failed, limit];
        self.for_each(&query, values, AttemptRow::from_row, each)
    }

    /// Returns the attempts of a job that have ended, in order. Reads all attempts of the log.
    pub(crate) fn attempts_of(&self, job: u32) -> Result<Vec<AttemptRow>, LogError> {
        let node = self.node_column()?;
        let query = format!(
            "SELECT {JOB_COLUMNS}, {ATTEMPT_COLUMNS}, {node} FROM attempts JOIN jobs ON jobs.id = attempts.job \
             WHERE attempts.job = ?1 ORDER BY attempts.id"
        );
        self.list(&query, [job], AttemptRow::from_row)
    }

    fn node_column(&self) -> Result<&'static str, LogError> {
        let version =
            crate::journal::schema::version(&self.connection).map_err(|error| self.error(error))?;
        Ok(node_column(version))
    }

    /// Returns the attempts that run now, the longest first.
    pub(crate) fn running(&self) -> Result<Vec<RunningRow>, LogError> {
        let query = format!(
            "SELECT {JOB_COLUMNS}, running.run, running.attempt, running.slot, running.since \
             FROM running JOIN jobs ON jobs.id = running.job ORDER BY running.since, running.job"
        );
        self.list(&query, [], RunningRow::from_row)
    }

    /// Returns the jobs that the query means, at most `limit` of them: a name or a few digits may mean several. Reads all jobs
    /// of the log.
    ///
    /// A number or a name means the job that the last input names so, if there is one.
    pub(crate) fn find(&self, query: JobQuery<'_>, limit: u32) -> Result<Vec<JobRow>, LogError> {
        let version =
            crate::journal::schema::version(&self.connection).map_err(|error| self.error(error))?;
        let removed = if version >= 2 { "removed IS NOT NULL" } else { "0" };
        let select = |condition: &str| match condition.starts_with("substr") {
            true => {
                format!("SELECT {JOB_COLUMNS} FROM jobs WHERE {condition} ORDER BY id LIMIT ?2")
            }
            false => format!(
                "SELECT {JOB_COLUMNS} FROM jobs WHERE {condition} AND {removed} = \
                 (SELECT min({removed}) FROM jobs WHERE {condition}) ORDER BY id LIMIT ?2"
            ),
        };
        match query {
            JobQuery::Identity(digits) => {
                let condition = select("substr(hex(identity), 1, length(?1)) = upper(?1)");
                self.list(&condition, params![digits, limit], JobRow::from_row)
            }
            JobQuery::Number(number) => {
                let number = crate::journal::sqlite::signed(number);
                self.list(&select("number = ?1"), params![number, limit], JobRow::from_row)
            }
            JobQuery::Name(name) => {
                self.list(&select("name = ?1"), params![name, limit], JobRow::from_row)
            }
        }
    }

    /// Returns the row of the last attempt that has ended, from which [`AttemptFilter::after`] follows the log.
    pub(crate) fn last_attempt(&self) -> Result<Option<u64>, LogError> {
        let query = "SELECT max(id) FROM attempts";
        let last = self.connection.query_row(query, [], |row| unsigned(row, 0)).optional();
        last.map(Option::flatten).map_err(|error| self.error(error))
    }

    pub(super) fn list<T>(
        &self,
        query: &str,
        values: impl Params,
        value: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, LogError> {
        let mut all = Vec::new();
        self.for_each(query, values, value, |value| {
            all.push(value);
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }

    pub(super) fn for_each<T>(
        &self,
        query: &str,
        values: impl Params,
        mut value: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
        mut each: impl FnMut(T) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        let read = || -> rusqlite::Result<()> {
            self.guard.begin(&self.connection)?;
            let mut statement = self.connection.prepare_cached(query)?;
            let mut rows = statement.query(values)?;
            while let Some(row) = rows.next()? {
                if each(value(row)?).is_break() {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|error| self.error(error))
    }

    pub(super) fn error(&self, error: rusqlite::Error) -> LogError {
        LogError::sqlite(&self.path, error)
    }
}
