//! A simple, slow model of a batch, which checks each decision against the documented rules.
//!
//! It knows only events and decisions, looks at all jobs each time, and shares no data structure with the scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Batch, Jobs};
use crate::scheduler::event::Refusal;
use crate::scheduler::tests::{NOT_RUN, STOPPED, SUCCEEDED, UNKNOWN, failed};
use crate::scheduler::*;
use crate::vocabulary::{Failure, HaltAt, JobOutcome};

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
    is_unstored: bool,
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
    may_shed: usize,
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
            // The model chooses classes alone.
            Event::Failed { .. } => {}
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
            // Not simulated: they only hold starts back.
            Event::MostJobs { .. } | Event::PauseOver => {}
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
    fn is_limit_reached(&self) -> bool {
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
        let Some(rule) = self.batch.config.halt else { return false };
        match (rule.at, total) {
            (HaltAt::Successes(count), _) => {
                let successes =
                    jobs().filter_map(outcome).filter(|it| *it == JobOutcome::Succeeded);
                successes.count() as u64 >= count.get()
            }
            (HaltAt::Failures(count), _) => failures as u64 >= count.get(),
            (HaltAt::FailedPercent(percent), Some(total)) => {
                failures > 0 && failures * 100 >= total * usize::from(percent)
            }
            (HaltAt::FailedPercent(percent), None) => {
                failures >= 3 && failures * 100 >= read * usize::from(percent)
            }
        }
    }

    /// Ends the batch if there were too many failures.
    fn apply_limit(&mut self) {
        if !self.halted && self.is_limit_reached() {
            self.halted = true;
            self.stopping = self.batch.config.halt.is_some_and(|rule| rule.stops_running);
        }
    }
}

// The model of admission: which ready job is the next one to start, by looking at all of them.

/// Resources that are free, less those that are kept.
struct Free {
    cpus: i64,
    memory: Option<i64>,
    named: Vec<i64>,
    nothing_runs: bool,
}

impl Free {
    fn fits(&self, needs: &Needs) -> bool {
        let memory = needs.memory_bytes.unwrap_or(0) as i64;
        let has_memory = self.memory.is_none_or(|free| memory == 0 || memory <= free);
        i64::from(needs.cpus.get()) <= self.cpus
            && (has_memory || self.nothing_runs)
            && needs.named.iter().all(|need| i64::from(need.count) <= self.named[need.kind])
    }

    /// Takes what is kept for a starving job: all CPUs except one.
    fn keep(&mut self, needs: &Needs) {
        if needs.cpus.get() > 1 {
            self.cpus -= i64::from(needs.cpus.get());
        }
        self.take_more(needs);
    }

    fn take_more(&mut self, needs: &Needs) {
        for need in &needs.named {
            self.named[need.kind] -= i64::from(need.count);
        }
        if let Some(memory) = &mut self.memory {
            *memory -= needs.memory_bytes.unwrap_or(0) as i64;
        }
    }
}

impl Model<'_> {
    fn free(&self) -> Free {
        let limits = &self.batch.config.limits;
        let mut free = Free {
            cpus: i64::from(self.capacity),
            memory: self.memory.map(|bytes| bytes as i64),
            named: limits.named.iter().map(|kind| i64::from(kind.capacity)).collect(),
            nothing_runs: self.holders().next().is_none(),
        };
        for (job, _) in self.holders() {
            free.cpus -= i64::from(job.needs.cpus.get());
            free.take_more(&job.needs);
        }
        free
    }

    /// Returns the first ready job that fits beside what runs and what is kept for earlier ones, if it has a permit.
    fn next_to_start(&self) -> Option<JobNumber> {
        let first = self.first_that_fits()?;
        let is_permitted = self.permits.is_none_or(|permits| self.with(first) <= permits);
        is_permitted.then_some(first)
    }

    /// Returns the permits that the first ready job that fits lacks.
    pub(super) fn wanted_permits(&self) -> Option<u32> {
        let wanted = self.with(self.first_that_fits()?);
        self.permits.filter(|permits| wanted > *permits).map(|_| wanted)
    }

    /// Returns the CPUs that are in use while that job runs too.
    fn with(&self, job: JobNumber) -> u32 {
        let held: u32 = self.holders().map(|(job, _)| job.needs.cpus.get()).sum();
        held + self.jobs[job].needs.cpus.get()
    }

    fn first_that_fits(&self) -> Option<JobNumber> {
        let mut free = self.free();
        if self.halted || !self.log_works || self.pressure != Pressure::None && !free.nothing_runs {
            return None;
        }
        let mut passed_over: Vec<&Needs> = Vec::new();
        for (number, job) in self.jobs.iter().filter(|(_, job)| self.is_ready(job)) {
            let needs = &job.needs;
            if passed_over.contains(&needs) {
                continue;
            }
            if free.fits(needs) {
                return Some(number);
            }
            passed_over.push(needs);
            if self.times_overtaken(needs) >= self.batch.patience {
                free.keep(needs);
            }
        }
        None
    }

    /// Returns the lowest slot that nobody has.
    fn lowest_slot(&self) -> u32 {
        let is_free = |slot: &u32| self.holders().all(|(_, held)| held != *slot);
        (1..=self.batch.config.limits.slots.get()).find(is_free).expect("more jobs than slots")
    }

    fn times_overtaken(&self, needs: &Needs) -> u32 {
        self.overtaken.iter().find(|(its, _)| its == needs).map_or(0, |(_, times)| *times)
    }

    /// Counts the start of this job against the earlier ones that are ready, and checks that none of them starves.
    pub(super) fn count_overtaken(&mut self, started: JobNumber) {
        let free = self.free();
        let taken = &self.jobs[started].needs;
        let is_hindered = |job: &Job<'_>| {
            let needs = &job.needs;
            let memory = needs.memory_bytes.unwrap_or(0) as i64;
            let takes_memory = taken.memory_bytes.unwrap_or(0) > 0 && memory > 0;
            let takes = |kind| taken.named.iter().any(|it| it.kind == kind);
            let lacks = |it: &ResourceNeed| i64::from(it.count) > free.named[it.kind];
            needs.cpus.get() > 1 && i64::from(needs.cpus.get()) > free.cpus
                || takes_memory && free.memory.is_some_and(|free| memory > free)
                || needs.named.iter().any(|it| takes(it.kind) && lacks(it))
        };
        let earlier = self.jobs.before(started).filter(|(_, job)| self.is_ready(job));
        let hindered: Vec<JobNumber> =
            earlier.filter(|(_, job)| is_hindered(job)).map(|(number, _)| number).collect();
        let first = self.jobs.iter().find(|(_, job)| self.is_ready(job)).map(|(first, _)| first);
        let known = self.first.filter(|(known, _)| Some(*known) == first && *known < started);
        let before = known.map_or(0, |(_, times)| times);
        self.first = first.map(|first| (first, before + u32::from(hindered.contains(&first))));
        let starves = self.first.is_some_and(|(_, times)| times > self.batch.patience);
        assert!(!starves, "{first:?} is overtaken too often");
        let mut kinds: Vec<&Needs> = Vec::new();
        for number in &hindered {
            let needs = &self.jobs[*number].needs;
            if !kinds.contains(&needs) {
                kinds.push(needs);
            }
        }
        for needs in kinds.into_iter().cloned().collect::<Vec<_>>() {
            match self.overtaken.iter_mut().find(|(its, _)| *its == needs) {
                Some((_, times)) => *times += 1,
                None => self.overtaken.push((needs, 1)),
            }
        }
        let taken = &self.jobs[started].needs;
        self.overtaken.retain(|(needs, _)| needs != taken);
    }

    /// Checks that no resource is used twice. A single job may exceed the memory, and so may those that ran before the
    /// budget was made smaller; the same with CPUs that are gone.
    fn check_capacity(&self) {
        let free = self.free();
        let has_shrunk = self.capacity < self.batch.config.limits.slots.get();
        assert!(free.cpus >= 0 || has_shrunk, "too many CPUs are used");
        assert!(
            free.named.iter().all(|free| *free >= 0),
            "more of a resource is used than there is"
        );
        let mut slots: Vec<u32> = self.holders().map(|(_, slot)| slot).collect();
        slots.sort_unstable();
        assert!(slots.windows(2).all(|pair| pair[0] != pair[1]), "two jobs in a slot");
    }

    /// Returns true if the decisions leave nothing to start.
    fn check_nothing_idles(&self) {
        assert_eq!(self.next_to_start(), None, "a job that fits was not started");
        let may_start = self.log_works && !self.halted;
        let is_held = |phase: &Phase| matches!(phase, Phase::Intended { is_durable: true, .. });
        assert!(!may_start || self.in_phase(is_held).is_empty(), "a durable intent is forgotten");
    }
}

// The checks of the model: each decision, and the state after each event.

/// Returns the end of a job whose next attempt is due when the batch ends. A `once` job does not begin again by itself.
fn resumed_with_its_attempts(once: bool, failure: Failure, retries: u32) -> JobEnd {
    match once && (failure != Failure::StartFailed || retries > 0) {
        true => failed(failure),
        false => STOPPED,
    }
}

impl Model<'_> {
    /// Checks a decision, and carries it out.
    pub(super) fn decide(&mut self, decision: &Decision) {
        match *decision {
            Decision::Intend { job, attempt, durable } => self.intend(job, attempt, durable),
            Decision::Start { job, slot, attempt } => self.start(job, slot, attempt),
            Decision::Stop { job } => self.stop(job),
            Decision::Retry { job, delay } => self.retry(job, delay),
            Decision::Requeue { job, cause } => {
                assert!(!self.halted);
                let (more, most_lost) =
                    (self.more_memory(&self.jobs[job]), self.batch.config.max_lost);
                let job = self.job(job);
                match (&job.phase, more, cause) {
                    (
                        Phase::Ended { result: Err(_), stop: Some(Why::Pressure) },
                        _,
                        Requeued::Pressure,
                    ) => {
                        job.last = Some(Last::Shed);
                    }
                    (
                        Phase::Ended { result: Err(Failure::Lost), stop: None },
                        _,
                        Requeued::Lost,
                    ) => {
                        job.lost += 1;
                        assert!(!job.spec.once && job.lost < most_lost, "lost too often");
                        assert!(!job.is_unanswered, "it may have run to its end, and runs again");
                        job.last = Some(Last::Failed(Failure::Lost));
                    }
                    (
                        Phase::Ended { result: Err(Failure::OutOfMemory), stop: None },
                        Some(_),
                        Requeued::MoreMemory,
                    ) => {
                        job.needs.memory_bytes = more;
                        job.last = Some(Last::Failed(Failure::OutOfMemory));
                    }
                    other => panic!("queued again when it is {other:?}"),
                }
                job.phase = Phase::Waiting;
            }
            Decision::Settle { job, ref end } => {
                self.check_end(job, end);
                self.job(job).phase = Phase::Settled(end.clone());
            }
        }
        self.before = Some(decision.clone());
    }

    fn intend(&mut self, number: JobNumber, attempt: u32, durable: bool) {
        assert!(!self.is_limit_reached() || self.halted, "a start after too many failures");
        assert_eq!(self.next_to_start(), Some(number), "not the next one");
        let slot = self.lowest_slot();
        let job = self.job(number);
        job.attempts += 1;
        assert_eq!((attempt, durable), (job.attempts, job.spec.once));
        job.phase = Phase::Intended { slot, is_durable: false };
        self.count_overtaken(number);
        self.check_capacity();
    }

    fn start(&mut self, number: JobNumber, slot: u32, attempt: u32) {
        assert!(!self.halted && self.log_works);
        self.starts += 1;
        let since = self.starts;
        let intend = Decision::Intend { job: number, attempt, durable: false };
        let is_after_intent = self.before == Some(intend);
        let job = self.job(number);
        let is_durable = job.phase == Phase::Intended { slot, is_durable: true };
        let is_intended = job.phase == Phase::Intended { slot, is_durable: false };
        assert!(if job.spec.once { is_durable } else { is_intended && is_after_intent });
        assert_eq!(attempt, job.attempts);
        job.phase = Phase::Running { slot, since, stop: None };
    }

    fn stop(&mut self, number: JobNumber) {
        if self.may_shed == 0 {
            self.apply_limit();
        }
        let is_end = self.stopping;
        if !is_end {
            assert!(self.may_shed > 0, "a stop without a reason");
            self.may_shed -= 1;
            let is_running = |phase: &Phase| matches!(phase, Phase::Running { stop: None, .. });
            let running = self.in_phase(is_running);
            assert!(running.len() > 1, "the only job was stopped under pressure");
            let since = |job: &JobNumber| match self.jobs[*job].phase {
                Phase::Running { since, .. } => since,
                _ => 0,
            };
            let may_run_again = running.into_iter().filter(|job| !self.jobs[*job].spec.once);
            assert_eq!(may_run_again.max_by_key(since), Some(number), "not the youngest");
        }
        match &mut self.job(number).phase {
            Phase::Running { stop: stop @ None, .. } => {
                *stop = Some(if is_end { Why::End } else { Why::Pressure });
            }
            other => panic!("stop of a job that is {other:?}"),
        }
    }

    fn retry(&mut self, number: JobNumber, delay: Duration) {
        let policy = self.batch.config.retry;
        let is_over = self.halted;
        let gets_more = self.more_memory(&self.jobs[number]).is_some();
        let job = self.job(number);
        let Phase::Ended { result: Err(failure), stop: None } = job.phase else {
            panic!("a retry of a job that is {:?}", job.phase);
        };
        assert!(!is_over && job.retries < job.spec.retries && policy.on.contains(failure));
        assert!(failure != Failure::OutOfMemory || !gets_more, "a retry, and not more memory");
        assert!(!(job.spec.once && failure == Failure::Lost), "a once job was lost and runs again");
        let longest = (0..job.retries).fold(policy.delay, |delay, _| delay * 2);
        let longest = longest.min(policy.max_delay);
        let shortest = longest * u32::from(100 - policy.jitter_percent) / 100;
        assert!((shortest..=longest).contains(&delay), "{delay:?}");
        job.retries += 1;
        (job.phase, job.last) = (Phase::Retrying, Some(Last::Failed(failure)));
    }

    fn check_end(&mut self, number: JobNumber, end: &JobEnd) {
        let job = &self.jobs[number];
        let expected = match (&job.phase, &job.spec.past) {
            (Phase::Settled(_), _) => panic!("{number:?} is settled twice"),
            (Phase::Running { .. }, _) => panic!("{number:?} is settled while it runs"),
            (Phase::Waiting, Some(past)) => past.clone(),
            (Phase::Ended { result, stop }, None) => match (*result, *stop) {
                (Ok(()), _) if job.is_unstored && job.spec.once => UNKNOWN,
                (Ok(()), _) if job.is_unstored => {
                    JobEnd { outcome: JobOutcome::Failed, cause: Some(Cause::Unstored) }
                }
                (Ok(()), _) => SUCCEEDED,
                (Err(Failure::Lost), _) if job.spec.once => UNKNOWN,
                (Err(Failure::Lost), stop) if job.is_unanswered => {
                    let is_retried = self.batch.config.retry.on.contains(Failure::Lost);
                    let has_retry = job.retries < job.spec.retries && is_retried;
                    assert!(stop.is_some() || self.halted || !has_retry, "a retry is missing");
                    UNKNOWN
                }
                // It has begun, and nobody knows how far it got.
                (Err(failure), Some(_)) if job.spec.once && failure != Failure::StartFailed => {
                    UNKNOWN
                }
                (Err(failure), Some(_)) if job.spec.once && job.retries > 0 => failed(failure),
                (Err(_), Some(stop)) => {
                    assert!(stop == Why::End || self.halted, "a job was shed and not queued again");
                    STOPPED
                }
                (Err(failure), None) => {
                    let may_be_lost = job.lost + 1 < self.batch.config.max_lost;
                    let is_queued = failure == Failure::Lost && may_be_lost;
                    assert!(self.halted || !is_queued, "a lost job was not queued again");
                    let is_retried = self.batch.config.retry.on.contains(failure);
                    let has_retry = job.retries < job.spec.retries && is_retried;
                    assert!(self.halted || !has_retry, "a retry is missing");
                    let gets_more =
                        failure == Failure::OutOfMemory && self.more_memory(job).is_some();
                    assert!(self.halted || !gets_more, "it did not get more memory");
                    match is_queued || has_retry || gets_more {
                        true => resumed_with_its_attempts(job.spec.once, failure, job.retries),
                        false => failed(failure),
                    }
                }
            },
            (Phase::Waiting | Phase::Intended { .. } | Phase::Retrying, None) => {
                return self.check_unstarted(number, end);
            }
            other => panic!("{number:?} is settled when it is {other:?}"),
        };
        assert_eq!(*end, expected, "{number:?}");
    }

    /// Checks the outcome of a job that does not end because an attempt ended.
    fn check_unstarted(&mut self, number: JobNumber, end: &JobEnd) {
        let spec = self.jobs[number].spec;
        match (end.outcome, &end.cause) {
            (JobOutcome::Skipped, Some(Cause::After(cause))) => {
                let name = self.jobs[*cause].spec.name.as_ref().expect("nobody waits for it");
                assert!(spec.after.contains(name));
                let phase = &self.jobs[*cause].phase;
                assert!(matches!(phase, Phase::Settled(end) if *end != NOT_RUN));
                assert_ne!(*phase, Phase::Settled(SUCCEEDED));
                assert_eq!(self.jobs[number].attempts, 0);
            }
            (JobOutcome::Refused, Some(Cause::Refusal(Refusal::UnknownAfter { name }))) => {
                assert!(self.input_ended && spec.after.contains(name));
                assert!(!self.names.contains_key(&**name));
            }
            (JobOutcome::Refused, Some(Cause::Refusal(Refusal::Cycle { names }))) => {
                assert!(self.input_ended && names.contains(spec.name.as_ref().unwrap()));
                let spec = |name: &str| self.jobs[self.names[name]].spec;
                for (at, name) in names.iter().enumerate() {
                    assert!(spec(name).after.contains(&names[(at + 1) % names.len()]));
                    assert!(!names[..at].contains(name));
                }
            }
            _ => {
                self.apply_limit();
                assert!(self.halted, "{number:?} is {end:?}, and the batch goes on");
                let expected = match self.jobs[number].last {
                    None => NOT_RUN,
                    Some(Last::Shed) => STOPPED,
                    Some(Last::Failed(failure)) => {
                        resumed_with_its_attempts(spec.once, failure, self.jobs[number].retries)
                    }
                };
                assert_eq!(*end, expected);
                let is_caused = spec.after.iter().any(|name| self.is_a_cause(name));
                assert!(expected != NOT_RUN || !is_caused, "not skipped");
            }
        }
    }

    /// Returns true if the job of that name was settled, and dependents are skipped because of it.
    fn is_a_cause(&self, name: &str) -> bool {
        let phase = self.names.get(name).map(|number| &self.jobs[*number].phase);
        let no_cause = [SUCCEEDED, NOT_RUN];
        matches!(phase, Some(Phase::Settled(end)) if !no_cause.contains(end))
    }

    /// Checks what has to hold after each event.
    pub(super) fn check(&mut self, scheduler: &Scheduler) {
        self.apply_limit();
        self.check_nothing_idles();
        self.check_capacity();
        assert_eq!(scheduler.wanted_permits(), self.wanted_permits());
        for (number, job) in self.jobs.iter() {
            assert!(!matches!(job.phase, Phase::Ended { .. }), "{number:?}: no decision");
            assert!(job.spec.past.is_none() || matches!(job.phase, Phase::Settled(_)));
            let is_unstarted = !matches!(job.phase, Phase::Settled(_) | Phase::Running { .. });
            assert!(!(self.halted && is_unstarted), "{number:?} waits after the end");
            let is_stopped = !matches!(job.phase, Phase::Running { stop: None, .. });
            assert!(!self.stopping || is_stopped, "{number:?} was not stopped");
            for name in job.spec.after.iter().filter(|_| is_unstarted) {
                let awaited = self.names.get(&**name).map(|awaited| &self.jobs[*awaited].phase);
                assert!(awaited.is_some() || !self.input_ended, "{number:?} waits for nobody");
                let is_skipped = matches!(awaited, Some(Phase::Settled(it)) if *it != SUCCEEDED);
                assert!(!is_skipped, "{number:?} waits for a job that did not succeed");
            }
        }
        let is_over = self.jobs.values().all(|job| matches!(job.phase, Phase::Settled(_)));
        assert_eq!(scheduler.is_finished(), is_over && (self.input_ended || self.halted));
        assert_eq!(scheduler.halted().is_some(), self.halted);
        let ready = self.jobs.values().filter(|job| self.is_ready(job)).count();
        let ahead = (2 * self.capacity as usize).max(64);
        let takes_jobs = !self.input_ended && !self.halted && self.log_works;
        assert_eq!(scheduler.wants_input(), takes_jobs && ready < ahead);
    }
}
