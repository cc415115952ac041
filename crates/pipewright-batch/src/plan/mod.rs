//! The check of a whole input, before anything starts: duplicate and unknown names, cycles, resources that nobody has.
//!
//! The input is taken job by job, so it need not fit into memory. Kept are the names, and two numbers for each `after` of a
//! named job. Jobs without a name and without `after` cost nothing.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Display, Formatter};

use crate::scheduler::names::{self, Holder, NameId, Names};
use crate::scheduler::{JobNumber, Limits, Needs, NeedsError, Shown, ShownCycle};

/// The part of a job that the check reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned<'a> {
    pub(crate) job: JobNumber,
    pub(crate) name: Option<&'a str>,
    pub(crate) after: &'a [Box<str>],
    pub(crate) needs: &'a Needs,
}

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlanError {
    /// Two jobs have the same name.
    DuplicateName { name: Box<str>, first: JobNumber, second: JobNumber },
    /// No job has a name that the `after` of this job contains.
    UnknownAfter { job: JobNumber, name: Box<str> },
    /// Jobs wait for each other. Each one has the next in its `after`, and the last one has the first.
    Cycle { names: Vec<Box<str>> },
    /// The job can never run here.
    Needs { job: JobNumber, source: NeedsError },
}

impl Display for PlanError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::DuplicateName { name, first, second } => write!(
                f,
                "jobs {} and {} are both named {}: give each job a name of its own",
                first.0,
                second.0,
                Shown(name)
            ),
            PlanError::UnknownAfter { job, name } => {
                write!(f, "job {} is after {}, and no job has that name", job.0, Shown(name))
            }
            PlanError::Cycle { names } => {
                write!(f, "jobs wait for each other: {}", ShownCycle(names))
            }
            PlanError::Needs { job, .. } => write!(f, "job {} can never run", job.0),
        }
    }
}

impl Error for PlanError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            PlanError::Needs { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Checks all jobs of a batch.
///
/// # Errors
/// Returns the first error in the order of the jobs. Unknown names are found at the end, and a cycle after them.
#[cfg(test)]
pub(crate) fn check<'a>(
    jobs: impl IntoIterator<Item = Planned<'a>>,
    limits: &Limits,
) -> Result<(), PlanError> {
    let mut check = Check::new(limits);
    for job in jobs {
        check.add(job)?;
    }
    check.finish()
}

/// A check that takes one job after the other.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    limits: &'a Limits,
    names: Names,
    /// The first job that is after a name that no job has so far.
    awaited: BTreeMap<NameId, JobNumber>,
    /// Pairs of a named job and one that it waits for.
    edges: Vec<(usize, usize)>,
}

impl<'a> Check<'a> {
    pub(crate) fn new(limits: &'a Limits) -> Check<'a> {
        Check { limits, names: Names::default(), awaited: BTreeMap::new(), edges: Vec::new() }
    }

    /// Checks the needs and the name of a job.
    ///
    /// # Errors
    /// Refuses a job that can never run, and a name that another job has.
    pub(crate) fn add(&mut self, planned: Planned<'_>) -> Result<(), PlanError> {
        let Planned { job, name, after, needs } = planned;
        self.limits.check(needs.clone()).map_err(|source| PlanError::Needs { job, source })?;
        let mut id = None;
        if let Some(name) = name {
            let defined = self.names.define(name, job);
            let (defined, _) = defined.map_err(|first| PlanError::DuplicateName {
                name: name.into(),
                first,
                second: job,
            })?;
            self.awaited.remove(&defined);
            id = Some(defined);
        }
        for awaited in after {
            let (awaited, holder) = self.names.look_up(awaited);
            if holder == Holder::Awaited {
                self.awaited.entry(awaited).or_insert(job);
            }
            // Nobody can wait for a job without a name, so it is in no cycle.
            self.edges.extend(id.map(|id| (id.index(), awaited.index())));
        }
        Ok(())
    }

    /// Checks the `after` of all jobs.
    ///
    /// # Errors
    /// Returns the first job with an unknown name in its `after`, or one cycle.
    pub(crate) fn finish(self) -> Result<(), PlanError> {
        if let Some((id, job)) = self.awaited.iter().min_by_key(|(_, job)| **job) {
            return Err(PlanError::UnknownAfter { job: *job, name: self.names.text(*id).into() });
        }
        let cycles = names::cycles(self.names.len(), &self.edges);
        let Some(cycle) = cycles.first() else { return Ok(()) };
        let name = |index: &usize| self.names.text(NameId::from_index(*index)).into();
        Err(PlanError::Cycle { names: cycle.iter().map(name).collect() })
    }
}
