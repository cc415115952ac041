//! The check of a whole input, before anything starts: duplicate and unknown names, cycles, resources that nobody has.
//!
//! The input is taken job by job, so it need not fit into memory. Kept are the names, and two numbers for each `after`
//! of a named job. Jobs without a name and without `after` cost nothing.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Display, Formatter};

use super::Batch;
use crate::driver::{needs, unknown_token};
use crate::job::Job;
use crate::scheduler::names::{self, Holder, NameId, Names};
use crate::scheduler::{JobNumber, Limits, Needs, NeedsError, Shown, ShownCycle};
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
    /// A batch reads its input while it runs, and finds a bad job when it comes to it. Call this first if the input can
    /// be read twice.
    ///
    /// # Errors
    /// A job cannot be read, two jobs have the same name, no job has a name that is in an `after`, jobs wait for each
    /// other, or a job needs more than this batch has.
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
        let limits = self.clone().into_config().scheduler.limits;
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::scheduler::{ResourceKind, ResourceNeed};

    fn limits() -> Limits {
        let named = vec![ResourceKind { name: "link".into(), capacity: 2 }];
        Limits { slots: NonZeroU32::new(2).unwrap(), memory_bytes: None, named }
    }

    /// Checks jobs of a name (empty: none) and an `after`, with numbers from 1.
    fn checked(jobs: &[(&str, &[&str])]) -> Result<(), PlanError> {
        let afters =
            jobs.iter().map(|(_, after)| after.iter().map(|name| (*name).into()).collect());
        let afters: Vec<Vec<Box<str>>> = afters.collect();
        let needs = Needs { cpus: NonZeroU32::MIN, memory_bytes: None, named: Vec::new() };
        let planned = (1..).zip(jobs).zip(&afters).map(|((number, (name, _)), after)| Planned {
            job: JobNumber(number),
            name: Some(*name).filter(|name| !name.is_empty()),
            after,
            needs: &needs,
        });
        let limits = limits();
        let mut check = Check::new(&limits);
        planned.into_iter().try_for_each(|job| check.add(job))?;
        check.finish()
    }

    #[test]
    fn a_good_plan_is_accepted() {
        assert_eq!(checked(&[]), Ok(()));
        let jobs: [(&str, &[&str]); 5] =
            [("", &["b", "b"]), ("a", &[]), ("b", &["a", "c"]), ("c", &["a"]), ("", &[])];
        assert_eq!(checked(&jobs), Ok(()));
    }

    #[test]
    fn duplicate_names_are_refused_with_both_jobs() {
        let error = checked(&[("a", &["unknown"]), ("", &[]), ("a", &[])]).unwrap_err();
        let (first, second) = (JobNumber(1), JobNumber(3));
        assert_eq!(error, PlanError::DuplicateName { name: "a".into(), first, second });
        assert_eq!(
            error.to_string(),
            "jobs 1 and 3 are both named \"a\": give each job a name of its own"
        );
    }

    #[test]
    fn unknown_names_are_refused_with_the_first_job() {
        let jobs: [(&str, &[&str]); 4] =
            [("a", &["later"]), ("b", &["z", "y"]), ("", &["y", "z"]), ("later", &[])];
        let error = checked(&jobs).unwrap_err();
        assert_eq!(error, PlanError::UnknownAfter { job: JobNumber(2), name: "z".into() });
        assert_eq!(error.to_string(), "job 2 is after \"z\", and no job has that name");
        let error = checked(&[("", &["nobody"])]).unwrap_err();
        assert_eq!(error, PlanError::UnknownAfter { job: JobNumber(1), name: "nobody".into() });
    }

    #[test]
    fn a_cycle_is_refused_with_its_names_in_order() {
        let jobs: [(&str, &[&str]); 5] =
            [("free", &[]), ("tail", &["a"]), ("a", &["free", "b"]), ("c", &["a"]), ("b", &["c"])];
        let error = checked(&jobs).unwrap_err();
        let names = ["a", "b", "c"].map(Box::from).to_vec();
        assert_eq!(error, PlanError::Cycle { names });
        assert_eq!(
            error.to_string(),
            "jobs wait for each other: \"a\" after \"b\" after \"c\" after \"a\""
        );
        let error = checked(&[("own", &["own"])]).unwrap_err();
        assert_eq!(error, PlanError::Cycle { names: vec!["own".into()] });
    }

    #[test]
    fn needs_that_nobody_has_are_refused() {
        let needs = |cpus, count| Needs {
            cpus: NonZeroU32::new(cpus).unwrap(),
            memory_bytes: None,
            named: vec![ResourceNeed { kind: 0, count }],
        };
        let checked = |needs: Needs| {
            let job = JobNumber(7);
            Check::new(&limits()).add(Planned { job, name: None, after: &[], needs: &needs })
        };
        assert_eq!(checked(needs(2, 2)), Ok(()));
        let error = checked(needs(1, 3)).unwrap_err();
        assert_eq!(error.to_string(), "job 7 can never run");
        let source = error.source().map(ToString::to_string);
        assert_eq!(
            source.as_deref(),
            Some("needs 3 of the resource \"link\", and the batch has 2")
        );
        assert!(matches!(checked(needs(3, 1)), Err(PlanError::Needs { .. })));
    }

    #[test]
    fn a_deep_chain_and_a_long_cycle_need_no_recursion() {
        const JOBS: usize = 100_000;
        let names: Vec<String> = (0..JOBS).map(|job| job.to_string()).collect();
        let limits = limits();
        let needs = Needs { cpus: NonZeroU32::MIN, memory_bytes: None, named: Vec::new() };
        for is_cycle in [false, true] {
            let mut check = Check::new(&limits);
            for (job, name) in names.iter().enumerate() {
                let next = names.get(job + 1).or(names.first().filter(|_| is_cycle));
                let after: Vec<Box<str>> =
                    next.into_iter().map(|name| name.as_str().into()).collect();
                let job = JobNumber(job as u64);
                check.add(Planned { job, name: Some(name), after: &after, needs: &needs }).unwrap();
            }
            match check.finish() {
                Ok(()) => assert!(!is_cycle),
                Err(PlanError::Cycle { names }) => {
                    assert!(is_cycle && names.len() == JOBS && &*names[JOBS - 1] == "99999");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
