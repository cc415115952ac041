//! The scheduler: a pure state machine. Events in, decisions out, no system call, no clock.
//!
//! The driver adds jobs while [`Scheduler::wants_input`], reports what happens by [`Scheduler::handle`], and carries
//! out the decisions in order, until [`Scheduler::is_finished`]. Equal calls give equal decisions, in every process.
//!
//! Each job that was added is settled exactly once. Each started attempt is answered by one [`Event::Ended`], and that
//! by one decision about the job: `Settle`, `Retry` or `Requeue`.
//!
//! **Intents.** The attempts of most jobs are intended and started by two decisions in a row, and the intent may become
//! durable later. An attempt of a `once` job is only intended, and starts after [`Event::Intended`]; it has its slot
//! and its resources from the intent on. A `once` job is never stopped under pressure, and is `Unknown` if it was lost.
//!
//! **Order.** Ready jobs start in order of arrival where they fit, also those that were ready late: see `admission.rs`.
//! At least one job runs, whatever the memory.
//!
//! **More memory.** A job that ran out of memory is tried again with twice as much, up to what it may have, and that is
//! no retry. A `once` job is not.
//!
//! **Permits.** Below a jobserver, jobs start only with its permits. The first job in line that lacks nothing else
//! is not overtaken. [`Scheduler::wanted_permits`] says what it lacks.
//!
//! **The machine.** Load and free memory bound the number of jobs at once ([`Event::MostJobs`]), and a pause can follow
//! each start.
//!
//! **The end.** `Drain`, `Stop` and the limit of failures end a batch early: what has not been started is settled, no
//! input is wanted, and nothing starts any more. `LogFailed` only pauses: nothing starts until `LogWorks`.
//!
//! **Cost.** An event takes O(log n) amortized, except those that end the input or the batch, which look once at each
//! unfinished job. Memory is bounded by the unfinished jobs, and by the names of the finished ones until the input
//! ends.
//!
//! | file | contents |
//! |---|---|
//! | `event.rs` | events, decisions, outcomes |
//! | `adding.rs` | jobs; new ones and what they wait for; the end of the input |
//! | `admission.rs` | which job starts: needs, free resources, and the jobs that are ready |
//! | `attempts.rs` | ends of attempts, retries, outcomes, dependents; stops under pressure, and the early end |
//! | `names.rs` | names of jobs, those that wait for one, and cycles |

mod adding;
mod admission;
mod attempts;
mod event;
pub(crate) mod names;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use crate::vocabulary::{Halt, HaltAt, HaltRule};

pub(crate) use adding::{AddError, Spec};
use adding::{Job, Settled};
pub(crate) use admission::{Limits, Needs, NeedsError, ResourceKind, ResourceNeed};
use admission::{Pool, Ready};
pub(crate) use attempts::RetryPolicy;
use attempts::Tally;
pub(crate) use event::{
    Cause, Decision, Event, JobEnd, JobNumber, Pressure, Requeued, Shown, ShownCycle,
};
use names::Names;

/// Ready jobs that are read ahead, at least. With many slots it is two a slot.
pub(crate) const LEAST_READ_AHEAD: usize = 64;

/// Jobs that wait for other jobs or for a retry, above which no input is read while something else is under way.
const MOST_WAITING: usize = 100_000;

/// Times that a job is overtaken before its resources are kept free for it.
const PATIENCE: u32 = 16;

/// Settings of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) limits: Limits,
    pub(crate) retry: RetryPolicy,
    pub(crate) halt: Option<HaltRule>,
    /// Attempts of a job that may be lost with their executor. The one that reaches this number is a failure; the
    /// others are started again, and count as no retry. 0 counts as 1.
    pub(crate) max_lost: u32,
    /// The number of CPUs at the beginning. `None`: one a slot.
    pub(crate) capacity: Option<u32>,
    /// The number of jobs, without those that ended in an earlier run, if it is known before the end of the input.
    pub(crate) total: Option<u64>,
    /// Each start is followed by a pause, until [`Event::PauseOver`]. It begins with the intent.
    pub(crate) spaced: bool,
    /// Ready jobs that are read ahead, at least ([`LEAST_READ_AHEAD`]). With many slots it is two a slot, or this
    /// number if it is below the usual one.
    pub(crate) read_ahead: usize,
    /// The source of all randomness, which is the jitter of retries.
    pub(crate) seed: u64,
}

/// The state of a batch.
#[derive(Debug)]
pub(crate) struct Scheduler {
    config: Config,
    jobs: Map<JobNumber, Job>,
    ready: Ready,
    pool: Pool,
    /// `None`: no more jobs are accepted, and no name is needed.
    names: Option<Names>,
    last_added: Option<JobNumber>,
    input_ended: bool,
    tally: Tally,
    /// Jobs in [`adding::State::Blocked`].
    blocked: usize,
    /// Jobs in [`adding::State::Retrying`].
    retrying: usize,
    /// Jobs in [`adding::State::Running`], and those of them that are stopped under pressure.
    running: usize,
    shedding: usize,
    /// Running jobs that may be stopped under pressure, by the time of their start.
    sheddable: BTreeSet<(u64, JobNumber)>,
    starts: u64,
    /// `once` jobs whose intent became durable just before the log failed.
    held: Vec<JobNumber>,
    log_works: bool,
    pressure: bool,
    /// Jobs that may run at once, because of the machine.
    most_jobs: usize,
    /// A job was started just now.
    pauses: bool,
    /// The permits with which the next job could start, if only permits keep it back.
    wanted_permits: Option<u32>,
    halted: Option<Halt>,
    stopping: bool,
    /// Jobs whose outcome is known, and has not been told to their dependents.
    settled: VecDeque<Settled>,
}

impl Scheduler {
    /// Returns a batch without jobs.
    pub(crate) fn new(config: Config) -> Scheduler {
        Scheduler::with_patience(config, PATIENCE)
    }

    fn with_patience(config: Config, patience: u32) -> Scheduler {
        Scheduler {
            jobs: Map::default(),
            ready: Ready::new(patience),
            pool: Pool::new(&config.limits, config.capacity),
            names: Some(Names::default()),
            last_added: None,
            input_ended: false,
            tally: Tally::new(config.total),
            blocked: 0,
            retrying: 0,
            running: 0,
            shedding: 0,
            sheddable: BTreeSet::new(),
            starts: 0,
            held: Vec::new(),
            log_works: true,
            pressure: false,
            most_jobs: usize::MAX,
            pauses: false,
            wanted_permits: None,
            halted: None,
            stopping: false,
            settled: VecDeque::new(),
            config,
        }
    }

    /// Adds a job, and appends what follows from it to `decisions`.
    ///
    /// After an early end the job is settled at once, because it may have been read before.
    ///
    /// # Errors
    /// A job that can never run is refused, and nothing has changed.
    pub(crate) fn add(
        &mut self,
        job: JobNumber,
        spec: Spec,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), AddError> {
        self.insert(job, spec, decisions)?;
        self.follow_up(decisions);
        Ok(())
    }

    /// Takes a report, and appends what follows from it to `decisions`.
    pub(crate) fn handle(&mut self, event: Event, decisions: &mut Vec<Decision>) {
        match event {
            Event::InputEnded => self.end_input(decisions),
            Event::Intended { job, attempt } => self.intended(job, attempt, decisions),
            Event::Ended { job, attempt, result } => {
                self.ended(job, attempt, result, true, decisions);
            }
            Event::Failed { job, attempt, failure } => {
                self.ended(job, attempt, Err(failure), false, decisions);
            }
            Event::Unstored { job, attempt } => self.unstored(job, attempt, decisions),
            Event::Unanswered { job, attempt } => self.unanswered(job, attempt, decisions),
            Event::RetryDue { job } => self.retry_due(job),
            Event::LogFailed => self.log_works = false,
            Event::LogWorks => self.log_works(decisions),
            Event::MemoryAvailable { bytes } => self.pool.set_memory_budget(bytes),
            Event::Capacity { cpus } => {
                self.pool.set_capacity(cpus.min(self.config.limits.slots.get()));
            }
            Event::Largest { cpus } => self.pool.set_largest(cpus),
            Event::Withdrawn { job } => self.withdraw(job),
            Event::Permits { cpus } => self.pool.set_permits(cpus),
            Event::Pressure(pressure) => self.press(pressure, decisions),
            Event::MostJobs { jobs } => self.most_jobs = jobs,
            Event::PauseOver => self.pauses = false,
            Event::Drain => self.halt(Halt::Drain, decisions),
            Event::Stop => self.halt(Halt::Stop, decisions),
        }
        self.follow_up(decisions);
    }

    /// Returns true if another job should be added, or the end of the input reported.
    ///
    /// Ready jobs are read ahead: two a slot, and at least 64. Jobs that wait for others do not count as ready, because
    /// those others may come later. But above 100,000 waiting jobs (a retry counts too), nothing is read while another
    /// job is ready, runs or is retried. If there is none, reading is the only way on.
    pub(crate) fn wants_input(&self) -> bool {
        let slots = usize::try_from(self.pool.capacity()).unwrap_or(usize::MAX);
        let is_idle = self.pool.jobs() + self.ready.len() + self.retrying == 0;
        !self.input_ended
            && self.halted.is_none()
            && self.log_works
            && self.ready.len() < self.read_ahead(slots)
            && (is_idle || self.blocked + self.retrying < MOST_WAITING)
    }

    /// Returns the number of ready jobs that are read ahead.
    fn read_ahead(&self, slots: usize) -> usize {
        match self.config.read_ahead {
            few if few < LEAST_READ_AHEAD => few.max(1),
            least => slots.saturating_mul(2).max(least),
        }
    }

    /// Returns the memory of the next or the current attempt of an unfinished job.
    pub(crate) fn memory_bytes(&self, job: JobNumber) -> Option<u64> {
        self.ready.needs(self.jobs.get(&job)?.shape).memory_bytes
    }

    /// Returns the number of jobs that could start if nothing held them back.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns the number of jobs from their intent to their end.
    pub(crate) fn jobs(&self) -> usize {
        self.pool.jobs()
    }

    /// Returns the CPUs that jobs hold, from their intent to their end.
    pub(crate) fn cpus_in_use(&self) -> u32 {
        self.pool.cpus_in_use()
    }

    /// Returns the number of permits with which another job would start, if only permits keep it back.
    pub(crate) fn wanted_permits(&self) -> Option<u32> {
        self.wanted_permits
    }

    /// Returns true if all jobs are settled and none will come.
    pub(crate) fn is_finished(&self) -> bool {
        self.jobs.is_empty() && (self.input_ended || self.halted.is_some())
    }

    /// Returns the first reason why the batch ends early.
    pub(crate) fn halted(&self) -> Option<Halt> {
        self.halted
    }

    fn follow_up(&mut self, decisions: &mut Vec<Decision>) {
        let reached = self.config.halt.filter(|rule| self.tally.reaches(rule.at));
        if let (None, Some(rule)) = (self.halted, reached) {
            let is_success = matches!(rule.at, HaltAt::Successes(_));
            self.halt(if is_success { Halt::Successes } else { Halt::Failures }, decisions);
        }
        self.admit(decisions);
    }
}

// A hash map with a fixed key, so that nothing in the scheduler depends on chance.

/// A builder of hashers with the same key in every process.
type Hashing = BuildHasherDefault<DefaultHasher>;

/// A hash map. Its order is never used for decisions.
type Map<K, V> = HashMap<K, V, Hashing>;
