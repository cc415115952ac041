//! The log as its page shows it: the jobs that the last input has, and their attempts. Jobs of an earlier input have
//! numbers that others have now.

use std::ops::ControlFlow;

use super::read::Log;
use super::rows::{ATTEMPT_COLUMNS, AttemptRow, JOB_COLUMNS, JobRow, node_column, unsigned};
use super::{LogError, sqlite};

impl Log {
    /// Returns the number of jobs that the last input does not have.
    ///
    /// # Errors
    /// The log cannot be read, here and below.
    pub(crate) fn removed_jobs(&self) -> Result<u64, LogError> {
        let query = format!("SELECT count(*) FROM jobs WHERE NOT ({})", self.in_input()?);
        let count = self.list(&query, [], |row| unsigned(row, 0))?;
        Ok(count.into_iter().flatten().next().unwrap_or(0))
    }

    /// Calls the function for each job of the last input, in the order of the log, until it breaks.
    pub(crate) fn for_each_job_of_input(
        &self,
        each: impl FnMut(JobRow) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        let query =
            format!("SELECT {JOB_COLUMNS} FROM jobs WHERE {} ORDER BY id", self.in_input()?);
        self.for_each(&query, [], JobRow::from_row, each)
    }

    /// Calls the function for each attempt of those jobs that has ended, in the order of the ends, until it breaks.
    pub(crate) fn for_each_attempt_of_input(
        &self,
        each: impl FnMut(AttemptRow) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        let node = node_column(self.version()?);
        let query = format!(
            "SELECT {JOB_COLUMNS}, {ATTEMPT_COLUMNS}, {node} FROM attempts JOIN jobs ON jobs.id = attempts.job \
             WHERE {} ORDER BY attempts.id",
            self.in_input()?
        );
        self.for_each(&query, [], AttemptRow::from_row, each)
    }

    /// Returns the condition for a job of the last input. The first version does not know others.
    fn in_input(&self) -> Result<&'static str, LogError> {
        Ok(if self.version()? >= 2 { "jobs.removed IS NULL" } else { "1" })
    }

    fn version(&self) -> Result<i64, LogError> {
        sqlite::version(&self.connection).map_err(|error| self.error(error))
    }
}
