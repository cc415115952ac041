//! Decisions of the scheduler, carried out in order.

use std::ffi::OsString;
use std::time::Instant;

use super::survivors::{BATCH_VARIABLE, RUN_VARIABLE};
use super::timers::Timer;
use super::{Driver, Event, Executor};
use crate::executor::{Attempt, AttemptEnd, AttemptKey, AttemptOutcome};
use crate::job::{Job, shell_quoted};
use crate::output::JobInfo;
use crate::scheduler::{self, Decision, JobNumber, Requeued};

impl<E: Executor> Driver<E> {
    pub(super) fn carry_out_decisions(&mut self) {
        // What is carried out may cause further decisions, which come after these.
        while !self.decisions.is_empty() {
            for decision in std::mem::take(&mut self.decisions) {
                self.carry_out(decision);
                self.log.submit_if_large();
            }
        }
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Intend { job, attempt, durable } => self.intend(job, attempt, durable),
            Decision::Start { job, slot, attempt } => self.start_attempt(job, slot, attempt),
            Decision::Stop { job } => self.stop_attempt(job),
            Decision::Retry { job, delay } => {
                self.log.decided(job);
                let due = Instant::now().checked_add(delay);
                // A delay beyond the range of the clock never ends.
                self.timers.extend(due.map(|due| (due, Timer::Retry(job))));
                self.events.push_back(Event::Retrying { job: job.0, delay });
            }
            Decision::Requeue { job, cause } => {
                self.log.decided(job);
                self.queued_again(job, cause);
            }
            Decision::Settle { job, end } => {
                self.settle(job, &end);
                self.log.decided(job);
            }
        }
    }

    fn intend(&mut self, job: JobNumber, attempt: u32, durable: bool) {
        // The start follows at once, and its slot belongs in the log too.
        if !durable {
            return;
        }
        let Some(live) = self.live.get(job) else { return };
        // One that only waits for a place has not begun: it is noted once it has one.
        if self.executor.places_first() || !self.log.intend(job, live, attempt, None) {
            self.report(scheduler::Event::Intended { job, attempt });
        }
    }

    /// Notes an attempt that has a place, and lets it begin once that is durable.
    pub(super) fn attempt_placed(&mut self, key: AttemptKey) {
        let job = JobNumber(key.job);
        let Some(live) = self.live.get(job) else { return };
        if !self.log.intend(job, live, key.attempt, None) {
            self.executor.begin(key);
        }
    }

    fn start_attempt(&mut self, number: JobNumber, slot: u32, attempt: u32) {
        let Some(live) = self.live.get(number) else { return };
        let key = AttemptKey { job: number.0, attempt };
        let is_placed_first = live.once && self.executor.places_first();
        match is_placed_first {
            // It was noted before there was too little room.
            true => self.log.void(key),
            false if live.once => {}
            false => drop(self.log.intend(number, live, attempt, Some(slot))),
        }
        let (job, id) = (&live.job, live.id);
        let argv = match job.argv(slot) {
            Ok(argv) => argv,
            Err(error) => {
                let outcome = AttemptOutcome::NotStarted(error.to_string());
                self.live.started(number, attempt);
                self.attempt_ended(AttemptEnd::without_run(key, outcome));
                return;
            }
        };
        let command = String::from_utf8_lossy(&shell_quoted(&argv)).into_owned();
        let info = JobInfo {
            id,
            name: job.get_name().map(ToOwned::to_owned),
            command: command.clone(),
            tag: tag(job, &command),
            folder: None,
        };
        let attempt = Attempt {
            key,
            id,
            slot,
            cpus: job.get_resources().cpus.max(1),
            argv,
            current_dir: job.get_current_dir().map(Into::into),
            env: self.environment(number, slot, attempt),
            handles: self.permits.handles(),
            stdin: job.get_stdin().clone(),
            // None, as on the command line. A job that states it has none, whatever the batch has.
            once: live.once,
            timeout: job.get_timeout().or(self.config.timeout).filter(|limit| !limit.is_zero()),
            // What was learned is only reserved.
            memory_max_bytes: job
                .get_resources()
                .mem_bytes
                .and_then(|_| self.scheduler.memory_bytes(number)),
            output: self.output.as_mut().map(|output| output.begin(key, info)),
        };
        if let Some(live) = self.live.get_mut(number) {
            live.command.clone_from(&command);
        }
        self.live.started(number, key.attempt);
        self.events.push_back(Event::Started { key, slot, command });
        match is_placed_first {
            true => self.executor.place(attempt),
            false => self.executor.start(attempt),
        }
        self.look_later();
    }

    /// Returns the changes to the environment of a job: those of the batch, its own, and those that name the job.
    fn environment(
        &self,
        number: JobNumber,
        slot: u32,
        attempt: u32,
    ) -> Vec<(OsString, Option<OsString>)> {
        let batch = self.config.env.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
        let mut env: Vec<_> = batch.collect();
        let id = self.log.batch_id().map(|id| (BATCH_VARIABLE.into(), Some(id.into())));
        env.extend(id);
        env.extend(self.log.run_id().map(|id| (RUN_VARIABLE.into(), Some(id.into()))));
        if let Some(live) = self.live.get(number) {
            let own = live.job.get_envs();
            env.extend(own.map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))));
            let facts = [
                ("PIPEWRIGHT_JOB", number.0.to_string()),
                ("PIPEWRIGHT_JOB_ID", live.id.to_string()),
                ("PIPEWRIGHT_SLOT", slot.to_string()),
                ("PIPEWRIGHT_ATTEMPT", attempt.to_string()),
            ];
            env.extend(facts.map(|(name, value)| (name.into(), Some(value.into()))));
        }
        if self.permits.part().can_refill() {
            let own = env.iter().rfind(|(name, _)| name == "MAKEFLAGS");
            let makeflags = match own {
                Some((_, value)) => value.clone(),
                None => std::env::var_os("MAKEFLAGS"),
            };
            let variables = self.permits.part().variables(makeflags.as_deref());
            env.extend(variables.into_iter().map(|(name, value)| (name.into(), Some(value))));
        }
        env
    }

    /// Notes that a job is queued again, and why.
    fn queued_again(&mut self, number: JobNumber, cause: Requeued) {
        let Some(live) = self.live.get_mut(number) else { return };
        let memory_bytes = self.scheduler.memory_bytes(number);
        let (job, failure) = (number.0, live.failure.as_deref().unwrap_or("lost"));
        let note = match (cause, memory_bytes) {
            (Requeued::MoreMemory, Some(bytes)) => {
                format!("job {job}: out of memory; again with {bytes} bytes")
            }
            (Requeued::MoreMemory, None) => format!("job {job}: out of memory; again with more"),
            (Requeued::Pressure, _) => {
                format!("job {job}: stopped because memory is short; it is queued again")
            }
            (Requeued::Lost, _) => format!("job {job}: {failure}; it is queued again"),
        };
        self.events.push_back(Event::Note(note));
    }

    fn stop_attempt(&mut self, job: JobNumber) {
        if let Some(attempt) = self.live.get(job).and_then(|live| live.running) {
            self.executor.stop(AttemptKey { job: job.0, attempt });
        }
    }
}

/// Returns the tag of a job's lines: its name, the values of its record, or its command.
fn tag(job: &Job, command: &str) -> String {
    let name = job.get_name().map(ToOwned::to_owned);
    name.or_else(|| job.record_text()).unwrap_or_else(|| command.to_owned())
}
