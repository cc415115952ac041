//! The jobs that wait for one job, without a pile of those that wait no more.

use super::event::JobNumber;

/// Jobs that wait for the same job.
///
/// A job that is skipped because of another job stays in the list. A long-running job could so collect entries without
/// end: a full list is cleaned before it grows, which costs O(1) amortized a job.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Vec<JobNumber>);

impl Waiters {
    /// Adds a job. `waits` returns false for jobs that are settled.
    pub(super) fn push(&mut self, job: JobNumber, waits: impl Fn(JobNumber) -> bool) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|job| waits(*job));
            // Without this, a list whose entries are nearly all alive would be cleaned again at once.
            self.0.reserve(self.0.len().max(1));
        }
        self.0.push(job);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = JobNumber> + '_ {
        self.0.iter().copied()
    }

    /// Returns the number of entries, settled jobs included.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
