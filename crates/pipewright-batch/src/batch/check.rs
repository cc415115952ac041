//! The check of a whole input before anything starts.

use std::error::Error;
use std::fmt;

use super::Batch;
use crate::driver::{needs, unknown_token};
use crate::job::Job;
use crate::plan::{Check, PlanError, Planned};
use crate::scheduler::JobNumber;
use crate::source::InputError;

/// An input that cannot be run as a whole.
///
/// Prints as one line, with the number of the line if the input has lines.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// A job cannot be read.
    Input(InputError),
    /// A job does not fit the others, or this batch.
    #[non_exhaustive]
    Job {
        /// The line of the input that the job begins on, if it has lines.
        line: Option<u64>,
        /// The problem.
        message: String,
    },
}

impl Batch {
    /// Reads all jobs, runs none, and returns their number.
    ///
    /// A batch reads its input while it runs, and finds a bad job when it comes to it. Call this first if the input can be
    /// read twice.
    ///
    /// # Errors
    /// A job cannot be read, two jobs have the same name, no job has a name that is in an `after`, jobs wait for each other, or a
    /// job needs more than this batch has.
    ///
    /// ```
    /// use pipewright_batch::{Batch, Job};
    /// let jobs = [Job::new("make").name("build"), Job::new("./test").after("bulid")];
    /// let error = Batch::new().check(jobs).unwrap_err();
    /// assert_eq!(error.to_string(), "job 2 is after \"bulid\", and no job has that name");
    /// ```
    pub fn check<I>(&self, jobs: I) -> Result<u64, CheckError>
    where
        I: IntoIterator<Item: Into<Result<Job, InputError>>>,
    {
        let limits = self.limits();
        let mut check = Check::new(&limits);
        let mut count = 0;
        // The lines of jobs with lines: their numbers, in place of those of the jobs.
        let mut has_lines = false;
        for job in jobs {
            let job = job.into().map_err(CheckError::Input)?;
            count += 1;
            has_lines |= job.get_line().is_some();
            let after: Vec<Box<str>> =
                job.get_after().iter().map(|name| name.as_str().into()).collect();
            let planned = Planned {
                job: JobNumber(job.get_line().unwrap_or(count)),
                name: job.get_name(),
                after: &after,
                needs: &needs(job.get_resources(), &limits),
            };
            check.add(planned).map_err(|error| {
                match unknown_token(job.get_resources(), &limits) {
                    Some(unknown) if matches!(error, PlanError::Needs { .. }) => CheckError::Job {
                        line: job.get_line(),
                        message: format!("{error}: {unknown}"),
                    },
                    _ => CheckError::of(&error, has_lines),
                }
            })?;
        }
        check.finish().map_err(|error| CheckError::of(&error, has_lines))?;
        Ok(count)
    }
}

impl CheckError {
    fn of(error: &PlanError, has_lines: bool) -> CheckError {
        let job = match error {
            PlanError::DuplicateName { second: job, .. }
            | PlanError::UnknownAfter { job, .. }
            | PlanError::Needs { job, .. } => Some(job.0),
            PlanError::Cycle { .. } => None,
        };
        let mut message = error.to_string();
        if let Some(cause) = error.source() {
            message = format!("{message}: {cause}");
        }
        CheckError::Job { line: job.filter(|_| has_lines), message }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckError::Input(error) => write!(f, "{error}"),
            // The numbers of the jobs are those of their lines.
            CheckError::Job { line: Some(_), message } => {
                write!(f, "{}", message.replacen("job", "line", 1))
            }
            CheckError::Job { line: None, message } => f.write_str(message),
        }
    }
}

impl Error for CheckError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CheckError::Input(error) => Some(error),
            CheckError::Job { .. } => None,
        }
    }
}
