//! Jobs that are not settled.

use std::collections::HashMap;

use crate::job::{Job, JobId};
use crate::scheduler::JobNumber;

/// A job that is not settled.
#[derive(Debug)]
pub(super) struct LiveJob {
    pub(super) job: Box<Job>,
    pub(super) id: JobId,
    /// Runs at most once.
    pub(super) once: bool,
    /// The number of the attempt that runs.
    pub(super) running: Option<u32>,
    /// The command of the attempt that runs or ran last, quoted for a shell.
    pub(super) command: String,
    /// The reason for the failure of the last attempt.
    pub(super) failure: Option<String>,
    /// It ended in an earlier run.
    pub(super) is_past: bool,
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(super) struct LiveJobs {
    jobs: HashMap<JobNumber, LiveJob>,
    running: usize,
}

impl LiveJobs {
    pub(super) fn insert(&mut self, number: JobNumber, job: LiveJob) {
        self.jobs.insert(number, job);
    }

    pub(super) fn get(&self, number: JobNumber) -> Option<&LiveJob> {
        self.jobs.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: JobNumber) -> Option<&mut LiveJob> {
        self.jobs.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: JobNumber) -> Option<LiveJob> {
        self.jobs.remove(&number)
    }

    /// Returns all jobs, in order.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (JobNumber, &LiveJob)> {
        let mut jobs: Vec<_> = self.jobs.iter().map(|(number, job)| (*number, job)).collect();
        jobs.sort_unstable_by_key(|(number, _)| *number);
        jobs.into_iter()
    }

    /// Returns the number of running attempts.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    pub(super) fn started(&mut self, number: JobNumber, attempt: u32) {
        if let Some(job) = self.jobs.get_mut(&number) {
            job.running = Some(attempt);
            self.running += 1;
        }
    }

    /// Records the end of an attempt. Returns false if it does not run.
    pub(super) fn ended(
        &mut self,
        number: JobNumber,
        attempt: u32,
        failure: Option<String>,
    ) -> bool {
        let job = self.jobs.get_mut(&number).filter(|job| job.running == Some(attempt));
        let Some(job) = job else { return false };
        (job.running, job.failure) = (None, failure);
        self.running -= 1;
        true
    }
}
