//! The iterator of jobs that all sources give.

use std::fmt;
use std::iter::FusedIterator;
use std::path::Path;

use super::InputError;
use super::logged::LoggedJobs;
use crate::job::Job;

/// The jobs of a [`Source`](crate::Source), read when they are asked for.
///
/// Ends after the first error: what follows a bad record cannot be trusted.
#[must_use = "nothing is read before a job is asked for"]
pub struct Jobs(Option<Box<dyn ReadJobs + Send>>);

pub(super) trait ReadJobs {
    /// Reads the next job.
    fn next_job(&mut self) -> Result<Option<Job>, InputError>;
}

impl Jobs {
    /// Returns the jobs of a log. It is opened when the first one is asked for.
    pub(crate) fn of_log(path: &Path) -> Jobs {
        Jobs::new(LoggedJobs::new(path))
    }

    pub(super) fn new(reader: impl ReadJobs + Send + 'static) -> Jobs {
        Jobs(Some(Box::new(reader)))
    }
}

impl Iterator for Jobs {
    type Item = Result<Job, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.0.as_mut()?.next_job();
        if !matches!(next, Ok(Some(_))) {
            // Closes the input too.
            self.0 = None;
        }
        next.transpose()
    }
}

impl FusedIterator for Jobs {}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("has_ended", &self.0.is_none()).finish_non_exhaustive()
    }
}
