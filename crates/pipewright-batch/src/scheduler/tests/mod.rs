//! Tests of single rules: a scheduler, a few jobs, and the decisions that have to follow.

mod admission;
mod attempts;
mod measure;
mod names;

use std::time::Duration;

use super::event::Refusal;
use super::*;
use crate::vocabulary::{Failure, JobOutcome};

/// A scheduler that is told one thing after the other.
struct Told(Scheduler);

impl Told {
    fn new(slots: u32) -> Told {
        Told(Scheduler::new(config(slots)))
    }

    fn with(slots: u32, change: impl FnOnce(&mut Config)) -> Told {
        let mut config = config(slots);
        change(&mut config);
        Told(Scheduler::new(config))
    }

    #[track_caller]
    fn add(&mut self, number: u64, spec: Spec) -> Vec<Decision> {
        self.try_add(number, spec).unwrap()
    }

    fn try_add(&mut self, number: u64, spec: Spec) -> Result<Vec<Decision>, AddError> {
        let mut decisions = Vec::new();
        self.0.add(JobNumber(number), spec, &mut decisions)?;
        Ok(decisions)
    }

    fn tell(&mut self, event: Event) -> Vec<Decision> {
        let mut decisions = Vec::new();
        self.0.handle(event, &mut decisions);
        decisions
    }

    /// Ends the first attempt of a job.
    fn end(&mut self, number: u64, result: Result<(), Failure>) -> Vec<Decision> {
        self.end_attempt(number, 1, result)
    }

    fn end_attempt(
        &mut self,
        number: u64,
        attempt: u32,
        result: Result<(), Failure>,
    ) -> Vec<Decision> {
        self.tell(Event::Ended { job: JobNumber(number), attempt, result })
    }

    /// Adds a job, and asserts that it starts at once.
    #[track_caller]
    fn add_started(&mut self, number: u64, spec: Spec) {
        let decisions = self.add(number, spec);
        assert_eq!(started(&decisions), [number], "{decisions:?}");
    }

    /// Adds a job, and asserts that it waits.
    #[track_caller]
    fn add_waiting(&mut self, number: u64, spec: Spec) {
        assert_eq!(self.add(number, spec), []);
    }
}

fn config(slots: u32) -> Config {
    Config {
        spaced: false,
        read_ahead: LEAST_READ_AHEAD,
        limits: Limits { slots: count(slots), memory_bytes: None, named: Vec::new() },
        retry: RetryPolicy {
            on: Failure::ALL.into_iter().collect(),
            delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
            jitter_percent: 0,
        },
        halt: None,
        total: None,
        max_lost: 1,
        capacity: None,
        seed: 1,
    }
}

fn count(number: u32) -> std::num::NonZeroU32 {
    std::num::NonZeroU32::new(number).unwrap()
}

fn job() -> Spec {
    let needs = one_cpu();
    Spec {
        name: None,
        after: Vec::new(),
        needs,
        most_memory_bytes: None,
        retries: 0,
        once: false,
        past: None,
    }
}

fn named(name: &str) -> Spec {
    Spec { name: Some(name.into()), ..job() }
}

fn after(names: &[&str]) -> Spec {
    Spec { after: names.iter().map(|name| (*name).into()).collect(), ..job() }
}

fn named_after(name: &str, names: &[&str]) -> Spec {
    Spec { name: Some(name.into()), ..after(names) }
}

fn once() -> Spec {
    Spec { once: true, ..job() }
}

fn cpus(cpus: u32) -> Spec {
    Spec { needs: Needs { cpus: count(cpus), ..one_cpu() }, ..job() }
}

fn memory(bytes: u64) -> Spec {
    Spec { needs: Needs { memory_bytes: Some(bytes), ..one_cpu() }, ..job() }
}

fn taking(kind: usize, count: u32) -> Spec {
    let named = vec![ResourceNeed { kind, count }];
    Spec { needs: Needs { named, ..one_cpu() }, ..job() }
}

fn resource_kind(name: &str, capacity: u32) -> ResourceKind {
    ResourceKind { name: name.into(), capacity }
}

/// Returns the jobs that start.
fn started(decisions: &[Decision]) -> Vec<u64> {
    let number = |it: &Decision| match it {
        Decision::Start { job, .. } => Some(job.0),
        _ => None,
    };
    decisions.iter().filter_map(number).collect()
}

/// Returns the jobs that are settled, with their ends.
fn settled(decisions: &[Decision]) -> Vec<(u64, JobEnd)> {
    let end = |it: &Decision| match it {
        Decision::Settle { job, end } => Some((job.0, end.clone())),
        _ => None,
    };
    decisions.iter().filter_map(end).collect()
}

pub(super) const SUCCEEDED: JobEnd = JobEnd { outcome: JobOutcome::Succeeded, cause: None };
pub(super) const STOPPED: JobEnd = JobEnd { outcome: JobOutcome::Stopped, cause: None };
pub(super) const NOT_RUN: JobEnd = JobEnd { outcome: JobOutcome::NotRun, cause: None };
pub(super) const UNKNOWN: JobEnd = JobEnd { outcome: JobOutcome::Unknown, cause: None };

pub(super) fn failed(failure: Failure) -> JobEnd {
    JobEnd { outcome: JobOutcome::Failed, cause: Some(Cause::Failure(failure)) }
}

/// Returns the needs of a job that names none.
fn one_cpu() -> Needs {
    Needs { cpus: count(1), memory_bytes: None, named: Vec::new() }
}

fn refused(refusal: Refusal) -> JobEnd {
    JobEnd { outcome: JobOutcome::Refused, cause: Some(Cause::Refusal(refusal)) }
}

fn skipped(cause: u64) -> JobEnd {
    JobEnd { outcome: JobOutcome::Skipped, cause: Some(Cause::After(JobNumber(cause))) }
}

fn stop(job: u64) -> Decision {
    Decision::Stop { job: JobNumber(job) }
}

const FAILED: Result<(), Failure> = Err(Failure::ExitCode);
