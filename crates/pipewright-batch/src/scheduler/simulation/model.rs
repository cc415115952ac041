//! A simple, slow model of a batch, which checks each decision against the documented rules.
//!
//! It knows only events and decisions, looks at all jobs each time, and shares no data structure with the scheduler.

use std::collections::BTreeMap;

use super::batch::Batch;
use super::jobs::Jobs;
use crate::scheduler::tests::SUCCEEDED;
use crate::scheduler::*;
use crate::vocabulary::{Failure, JobOutcome};

/// A job, as its events and decisions show it.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) spec: &'a Spec,
    /// Its needs now: it gets more memory when it ran out of it.
    pub(super) needs: Needs,
    pub(super) phase: Phase,
    pub(super) attempts: u32,
    pub(super) retries: u32,
    pub(super) lost: u32,
    pub(super) last: Option<Last>,
    /// Its output was lost.
    pub(super) is_unstored: bool,
    /// The answer of its attempt is lost.
    pub(super) is_unanswered: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    Waiting,
    Intended {
        slot: u32,
        is_durable: bool,
    },
    Running {
        slot: u32,
        since: usize,
        stop: Option<Why>,
    },
    /// It has ended, and nothing was decided yet.
    Ended {
        result: Result<(), Failure>,
        stop: Option<Why>,
    },
    Retrying,
    Settled(JobEnd),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Why {
    Pressure,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Last {
    Failed(Failure),
    Shed,
}

/// The state of the batch.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) batch: &'a Batch,
    pub(super) jobs: Jobs<'a>,
    pub(super) names: BTreeMap<&'a str, JobNumber>,
    pub(super) input_ended: bool,
    pub(super) log_works: bool,
    pub(super) pressure: Pressure,
    /// Jobs that may still be stopped by the current report of pressure.
    pub(super) may_shed: usize,
    pub(super) memory: Option<u64>,
    pub(super) capacity: u32,
    pub(super) permits: Option<u32>,
    pub(super) halted: bool,
    pub(super) stopping: bool,
    pub(super) starts: usize,
    /// Times that jobs with these needs were overtaken in a row.
    pub(super) overtaken: Vec<(Needs, u32)>,
    /// The first ready job, and how often it was overtaken since it was.
    pub(super) first: Option<(JobNumber, u32)>,
    /// The decision before the current one.
    pub(super) before: Option<Decision>,
}

impl<'a> Model<'a> {
    pub(super) fn new(batch: &'a Batch) -> Model<'a> {
        Model {
            batch,
            jobs: Jobs::default(),
            names: BTreeMap::new(),
            input_ended: false,
            log_works: true,
            pressure: Pressure::None,
            may_shed: 0,
            memory: batch.config.limits.memory_bytes,
            capacity: batch.config.capacity.unwrap_or(batch.config.limits.slots.get()),
            permits: None,
            halted: false,
            stopping: false,
            starts: 0,
            overtaken: Vec::new(),
            first: None,
            before: None,
        }
    }

    pub(super) fn add(&mut self, number: JobNumber, spec: &'a Spec) {
        self.begin_event();
        if let Some(name) = &spec.name {
            assert!(self.names.insert(name, number).is_none());
        }
        let phase = Phase::Waiting;
        let needs = spec.needs.clone();
        let job = Job {
            spec,
            needs,
            phase,
            attempts: 0,
            retries: 0,
            lost: 0,
            last: None,
            is_unstored: false,
            is_unanswered: false,
        };
        self.jobs.push(number, job);
    }

    pub(super) fn report(&mut self, event: &Event) {
        self.begin_event();
        match *event {
            Event::InputEnded => self.input_ended = true,
            Event::Intended { job, attempt } => {
                let job = self.job(job);
                if let (Phase::Intended { is_durable, .. }, true) =
                    (&mut job.phase, job.attempts == attempt)
                {
                    *is_durable = true;
                }
            }
            Event::Ended { job, attempt, result } => {
                let job = self.job(job);
                if let (Phase::Running { stop, .. }, true) = (&job.phase, job.attempts == attempt) {
                    job.phase = Phase::Ended { result, stop: *stop };
                    job.is_unanswered = false;
                }
            }
            Event::Unstored { job, attempt } => {
                let job = self.job(job);
                if let (Phase::Running { stop, .. }, true) = (&job.phase, job.attempts == attempt) {
                    job.phase = Phase::Ended { result: Ok(()), stop: *stop };
                    job.is_unstored = true;
                }
            }
            Event::Unanswered { job, attempt } => {
                let job = self.job(job);
                if let (Phase::Running { stop, .. }, true) = (&job.phase, job.attempts == attempt) {
                    job.phase = Phase::Ended { result: Err(Failure::Lost), stop: *stop };
                    job.is_unanswered = true;
                }
            }
            Event::RetryDue { job } => {
                if self.job(job).phase == Phase::Retrying {
                    self.job(job).phase = Phase::Waiting;
                }
            }
            Event::LogFailed => self.log_works = false,
            Event::LogWorks => self.log_works = true,
            Event::MemoryAvailable { bytes } => self.memory = Some(bytes),
            Event::Capacity { cpus } => {
                self.capacity = cpus.min(self.batch.config.limits.slots.get());
            }
            Event::Permits { cpus } => self.permits = Some(cpus),
            Event::Pressure(pressure) => {
                self.pressure = pressure;
                self.may_shed = usize::from(pressure == Pressure::Shed && !self.halted);
            }
            Event::Withdrawn { job } => {
                let is_over = self.halted;
                if let Phase::Running { stop, .. } = &mut self.job(job).phase {
                    *stop = stop.or(is_over.then_some(Why::End));
                }
            }
            // The games have none: the executor decides about such a job.
            Event::Largest { .. } => {}
            Event::Drain => self.halted = true,
            Event::Stop => (self.halted, self.stopping) = (true, true),
        }
    }

    /// Returns the memory that a job gets if it ran out of it; `None` if it gets no more.
    pub(super) fn more_memory(&self, job: &Job<'_>) -> Option<u64> {
        let now = job.needs.memory_bytes.filter(|_| !job.spec.once)?;
        let most = job.spec.most_memory_bytes?;
        let most = most.min(self.batch.config.limits.memory_bytes.unwrap_or(u64::MAX));
        (now < most).then(|| (now * 2).min(most))
    }

    fn begin_event(&mut self) {
        self.may_shed = 0;
        self.before = None;
    }

    pub(super) fn job(&mut self, number: JobNumber) -> &mut Job<'a> {
        self.jobs.get_mut(number)
    }

    /// Returns true if the job has what it waits for.
    pub(super) fn is_ready(&self, job: &Job<'_>) -> bool {
        let succeeded = |name: &str| {
            let job = self.names.get(name).map(|number| &self.jobs[*number]);
            job.is_some_and(|job| job.phase == Phase::Settled(SUCCEEDED))
        };
        job.phase == Phase::Waiting && job.spec.after.iter().all(|name| succeeded(name))
    }

    /// Returns the jobs that hold resources, with their slots.
    pub(super) fn holders(&self) -> impl Iterator<Item = (&Job<'a>, u32)> {
        self.jobs.values().filter_map(|job| match job.phase {
            Phase::Intended { slot, .. } | Phase::Running { slot, .. } => Some((job, slot)),
            _ => None,
        })
    }

    /// Returns the jobs in that phase.
    pub(super) fn in_phase(&self, is_in: impl Fn(&Phase) -> bool) -> Vec<JobNumber> {
        let jobs = self.jobs.iter().filter(|(_, job)| is_in(&job.phase));
        jobs.map(|(number, _)| number).collect()
    }

    /// Returns true if the failures so far end the batch.
    pub(super) fn is_limit_reached(&self) -> bool {
        let jobs = || self.jobs.values().filter(|job| job.spec.past.is_none());
        let outcome = |job: &'_ Job<'a>| match &job.phase {
            Phase::Settled(end) => Some(end.outcome),
            _ => None,
        };
        let failures = [JobOutcome::Failed, JobOutcome::Refused, JobOutcome::Unknown];
        let is_failure = |it: &JobOutcome| failures.contains(it);
        let read = jobs().count();
        let failures = jobs().filter_map(outcome).filter(is_failure).count();
        let total = if self.input_ended {
            Some(jobs().count())
        } else {
            self.batch.config.total.map(|total| total as usize)
        };
        match (self.batch.config.halt.limit, total) {
            (HaltLimit::Never, _) => false,
            (HaltLimit::Successes(count), _) => {
                let successes =
                    jobs().filter_map(outcome).filter(|it| *it == JobOutcome::Succeeded);
                successes.count() as u64 >= count.get()
            }
            (HaltLimit::Failures(count), _) => failures as u64 >= count.get(),
            (HaltLimit::FailedPercent(percent), Some(total)) => {
                failures > 0 && failures * 100 >= total * usize::from(percent)
            }
            (HaltLimit::FailedPercent(percent), None) => {
                failures >= 3 && failures * 100 >= read * usize::from(percent)
            }
        }
    }

    /// Ends the batch if there were too many failures.
    pub(super) fn apply_limit(&mut self) {
        if !self.halted && self.is_limit_reached() {
            self.halted = true;
            self.stopping = self.batch.config.halt.then == OnLimit::Stop;
        }
    }
}
