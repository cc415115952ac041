//! The jobs of the model: a list in order of arrival, which is fast to walk without optimisation.

use std::ops::Index;

use super::model::Job;
use crate::scheduler::JobNumber;

#[derive(Debug, Default)]
pub(super) struct Jobs<'a>(Vec<(JobNumber, Job<'a>)>);

impl<'a> Jobs<'a> {
    pub(super) fn push(&mut self, number: JobNumber, job: Job<'a>) {
        self.0.push((number, job));
    }

    pub(super) fn get_mut(&mut self, number: JobNumber) -> &mut Job<'a> {
        let place = self.place(number);
        &mut self.0[place].1
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (JobNumber, &Job<'a>)> {
        self.0.iter().map(|(number, job)| (*number, job))
    }

    /// Returns the jobs that were added before that one.
    pub(super) fn before(&self, number: JobNumber) -> impl Iterator<Item = (JobNumber, &Job<'a>)> {
        self.0[..self.place(number)].iter().map(|(number, job)| (*number, job))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Job<'a>> {
        self.0.iter().map(|(_, job)| job)
    }

    fn place(&self, number: JobNumber) -> usize {
        self.0.binary_search_by_key(&number, |(number, _)| *number).expect("no such job was added")
    }
}

impl<'a> Index<JobNumber> for Jobs<'a> {
    type Output = Job<'a>;

    fn index(&self, number: JobNumber) -> &Job<'a> {
        &self.0[self.place(number)].1
    }
}
