//! New jobs.

use std::num::NonZeroU32;

use super::inbox::Input;
use super::live::LiveJob;
use super::{Driver, Event, Executor};
use crate::job::{Job, JobId, Resources};
use crate::scheduler::{self, JobNumber, Limits, Needs, Shown, Spec, TokenNeed};
use crate::vocabulary::JobOutcome;

impl<E: Executor> Driver<E> {
    /// Adds the jobs that the scheduler wants and that have been read.
    pub(super) fn add_jobs(&mut self) {
        while !self.input_ended && self.scheduler.wants_input() {
            match self.inbox.next_input() {
                Some(Input::Job(job)) => self.add_job(job),
                Some(Input::Failed(error)) => {
                    self.input_ended = true;
                    self.input_error = Some(error);
                    // What follows a bad record cannot be trusted.
                    self.report(scheduler::Event::Drain);
                }
                Some(Input::Ended) => {
                    self.input_ended = true;
                    self.report(scheduler::Event::InputEnded);
                    self.carry_out_decisions();
                    self.events.push_back(Event::InputEnded { jobs: self.added });
                    let removed = self.log.input_ended(self.added, self.live.in_order());
                    if removed > 0 {
                        let jobs = if removed == 1 { "job" } else { "jobs" };
                        let note = format!("{removed} {jobs} of the log not in the input any more");
                        self.events.push_back(Event::Note(note));
                    }
                }
                None => return,
            }
            // Each job may be started before the next one is added.
            if !self.decisions.is_empty() {
                self.carry_out_decisions();
            }
            self.log.submit_if_large();
        }
    }

    fn add_job(&mut self, job: Box<Job>) {
        self.added += 1;
        let logged = job.get_logged();
        let number = JobNumber(logged.map_or(self.added, |logged| logged.number));
        let id = logged.map_or_else(|| self.identities.next_id(&job), |logged| logged.id);
        if let Some(output) = &mut self.output {
            output.skip(self.last_number + 1..number.0);
        }
        self.last_number = number.0;
        let mut spec = self.spec(&job);
        if spec.needs.memory_bytes.is_none() {
            spec.needs.memory_bytes = self.learned_memory(id);
        }
        let once = spec.once;
        let reserves_memory = spec.needs.memory_bytes.is_some();
        let mut live = LiveJob {
            job,
            id,
            once,
            running: None,
            command: String::new(),
            failure: None,
            is_past: false,
        };
        spec.past = self.log.past(number, &live);
        live.is_past = spec.past.is_some();
        self.live.insert(number, live);
        if reserves_memory {
            self.watch_memory();
        }
        if let Err(error) = self.scheduler.add(number, spec, &mut self.decisions) {
            if let Some(live) = self.live.remove(number) {
                let unknown =
                    unknown_token(live.job.get_resources(), &self.config.scheduler.limits);
                let reason = unknown.unwrap_or_else(|| with_source(&error));
                self.conclude(number, &live, &JobOutcome::Refused.into(), Some(reason));
            }
        }
    }

    /// Returns the memory to reserve for a job that names none, learned from earlier runs: never a reason to refuse it.
    fn learned_memory(&self, id: JobId) -> Option<u64> {
        let learned = *self.config.learned_memory.get(&id)?;
        Some(self.config.scheduler.limits.memory_bytes.map_or(learned, |most| learned.min(most)))
    }

    fn spec(&self, job: &Job) -> Spec {
        Spec {
            name: job.get_name().map(Into::into),
            after: job.get_after().iter().map(|name| name.as_str().into()).collect(),
            needs: needs(job.get_resources(), &self.config.scheduler.limits),
            most_memory_bytes: job.get_resources().most_mem_bytes,
            retries: job.get_retries().unwrap_or(self.config.retries),
            once: job.get_once().unwrap_or(self.config.once),
            past: None,
        }
    }
}

/// Returns the needs of a job in the words of the scheduler.
pub(crate) fn needs(resources: &Resources, limits: &Limits) -> Needs {
    let kind = |name: &String| {
        let known = limits.tokens.iter().position(|kind| *kind.name == **name);
        // The scheduler refuses a kind that the batch does not have.
        known.unwrap_or(limits.tokens.len())
    };
    let tokens = resources.tokens.iter();
    Needs {
        cpus: NonZeroU32::new(resources.cpus).unwrap_or(NonZeroU32::MIN),
        memory_bytes: resources.mem_bytes,
        tokens: tokens.map(|(name, count)| TokenNeed { kind: kind(name), count: *count }).collect(),
    }
}

/// Returns the refusal of a job that needs tokens of a kind that the batch does not have. The scheduler knows no names.
pub(crate) fn unknown_token(resources: &Resources, limits: &Limits) -> Option<String> {
    let is_known = |name: &str| limits.tokens.iter().any(|kind| *kind.name == *name);
    let (name, _) = resources.tokens.iter().find(|(name, count)| **count > 0 && !is_known(name))?;
    Some(format!("needs tokens {}, and the batch has no such kind", Shown(name)))
}

/// Returns an error and its causes on one line.
fn with_source(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}
