//! Jobs in the driver: new ones, what the scheduler decides about them, and their ends.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::time::Instant;

use super::inbox::Input;
use super::{Driver, Event, Executor, LiveJob, Timer};
use crate::executor::{Attempt, JobFiles, SentFile};
use crate::job::{Job, JobId, Resources, Template, shell_quoted};
use crate::journal::{BATCH_VARIABLE, Journal, RUN_VARIABLE};
use crate::output::JobInfo;
use crate::scheduler::{
    self, Cause, Decision, JobEnd, JobNumber, Limits, Needs, Requeued, ResourceNeed, Shown, Spec,
};
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome, Failure, JobOutcome};
use crate::watch::numbered;

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
                self.log.undecided.remove(&job);
                let due = Instant::now().checked_add(delay);
                // A delay beyond the range of the clock never ends.
                self.timers.extend(due.map(|due| (due, Timer::Retry(job))));
                self.events.push_back(Event::Retrying { job: job.0, delay });
            }
            Decision::Requeue { job, cause } => {
                self.log.undecided.remove(&job);
                self.queued_again(job, cause);
            }
            Decision::Settle { job, end } => {
                self.settle(job, &end);
                self.log.undecided.remove(&job);
            }
        }
    }

    fn intend(&mut self, job: JobNumber, attempt: u32, durable: bool) {
        self.pause_after_start();
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
            tag: match &self.config.output.tag_text {
                Some(text) => job.text_of(text, number.0, slot, &command),
                None => tag(job, &command),
            },
            folder: None,
        };
        let named = |file: &Template| job.word_of(file, number.0, slot, &command);
        let send = self.config.send.iter();
        let files = JobFiles {
            send: send.map(|file| SentFile::new(named(file), file.is_literal())).collect(),
            fetch: self.config.fetch.iter().map(|file| named(file).into()).collect(),
            is_durable: self.log.journal.is_some(),
        };
        let attempt = Attempt {
            key,
            id,
            slot,
            cpus: job.get_resources().cpus.max(1),
            argv,
            current_dir: job
                .get_current_dir()
                .map(Into::into)
                .or_else(|| self.config.current_dir.clone()),
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
            files,
            output: self.output.as_mut().map(|output| output.begin(key, info)),
        };
        if let Some(live) = self.live.get_mut(number) {
            live.command.clone_from(&command);
        }
        self.live.started(number, key.attempt);
        let name = self.name(number);
        self.events.push_back(Event::Started { key, slot, command, name });
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
        if let Some(Journal { batch_id, run_id, .. }) = &self.log.journal {
            let ids = [(BATCH_VARIABLE, batch_id), (RUN_VARIABLE, run_id)];
            env.extend(ids.map(|(name, id)| (name.into(), Some(id.into()))));
        }
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

    /// Returns the user's name of a job that is not settled.
    fn name(&self, number: JobNumber) -> Option<String> {
        self.live.get(number)?.job.get_name().map(ToOwned::to_owned)
    }

    /// Notes that a job is queued again, and why.
    fn queued_again(&mut self, number: JobNumber, cause: Requeued) {
        let Some(live) = self.live.get_mut(number) else { return };
        let memory_bytes = self.scheduler.memory_bytes(number);
        let job = numbered(number.0, live.job.get_name());
        let failure = live.failure.as_deref().unwrap_or("lost");
        let note = match (cause, memory_bytes) {
            (Requeued::MoreMemory, Some(bytes)) => {
                format!("{job}: out of memory; again with {bytes} bytes")
            }
            (Requeued::MoreMemory, None) => format!("{job}: out of memory; again with more"),
            (Requeued::Pressure, _) => {
                format!("{job}: stopped because memory is short; it is queued again")
            }
            (Requeued::Lost, _) => format!("{job}: {failure}; it is queued again"),
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
    let typed = name.or_else(|| job.record_text()).or_else(|| job.shell_line());
    typed.unwrap_or_else(|| command.to_owned())
}

// New jobs.

impl<E: Executor> Driver<E> {
    /// Adds the jobs that the scheduler wants and that have been read.
    pub(super) fn add_jobs(&mut self) {
        while self.wants_input() {
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
        let known = limits.named.iter().position(|kind| *kind.name == **name);
        // The scheduler refuses a kind that the batch does not have.
        known.unwrap_or(limits.named.len())
    };
    let named = resources.named.iter();
    Needs {
        cpus: NonZeroU32::new(resources.cpus).unwrap_or(NonZeroU32::MIN),
        memory_bytes: resources.mem_bytes,
        named: named
            .map(|(name, count)| ResourceNeed { kind: kind(name), count: *count })
            .collect(),
    }
}

/// Returns the refusal of a job that needs a resource which the batch does not have. The scheduler knows no names.
pub(crate) fn unknown_token(resources: &Resources, limits: &Limits) -> Option<String> {
    let is_known = |name: &str| limits.named.iter().any(|kind| *kind.name == *name);
    let (name, _) = resources.named.iter().find(|(name, count)| **count > 0 && !is_known(name))?;
    Some(format!("needs the resource {}, which the batch does not have", Shown(name)))
}

/// Returns an error and its causes on one line.
fn with_source(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

// Ends of attempts, and of jobs.

impl<E: Executor> Driver<E> {
    /// Records the end of an attempt, and reports it to the scheduler.
    pub(super) fn attempt_ended(&mut self, mut end: AttemptEnd) {
        let (job, attempt) = (JobNumber(end.key.job), end.key.attempt);
        let failure = (!end.outcome.is_success()).then(|| end.outcome.to_string());
        // A late end, of an attempt that was given up, counts for nothing.
        if !self.live.ended(job, attempt, failure) {
            return;
        }
        let result = end.outcome.failure().map_or(Ok(()), Err);
        // The scheduler knows classes; a choice may be a code.
        let is_chosen = self.config.retry_on.iter().any(|failure| failure.includes(&end.outcome));
        let command = self.live.get(job).map(|live| live.command.clone()).unwrap_or_default();
        let name = self.name(job);
        self.pause_after_last_job();
        let before = self.decisions.len();
        // A success is never tried again, and it is none without its output.
        let stored =
            self.output.as_mut().filter(|_| result.is_ok()).map(|it| it.finish(&end, true));
        let lost = stored.as_ref().and_then(|summary| summary.error.as_ref());
        let lost = lost.map(|error| format!("its output was not stored: {error}"));
        let lost = lost.or_else(|| end.not_fetched.take().filter(|_| result.is_ok()));
        let is_lost = lost.is_some();
        let is_unanswered = result == Err(Failure::Lost) && !end.is_lost_with_node;
        self.report(match &lost {
            Some(_) => scheduler::Event::Unstored { job, attempt },
            None if is_unanswered => scheduler::Event::Unanswered { job, attempt },
            None => match result {
                Err(failure) if !is_chosen => scheduler::Event::Failed { job, attempt, failure },
                result => scheduler::Event::Ended { job, attempt, result },
            },
        });
        if let Some((error, live)) = lost.zip(self.live.get_mut(job)) {
            live.failure = Some(error);
        }
        let is_retried = |decision: &Decision| match decision {
            Decision::Retry { job: retried, .. } | Decision::Requeue { job: retried, .. } => {
                *retried == job
            }
            _ => false,
        };
        let keep = !self.decisions.iter().skip(before).any(is_retried);
        let mut last_lines = String::new();
        let finished = || self.output.as_mut().map(|output| output.finish(&end, keep));
        if let Some(summary) = stored.or_else(finished) {
            let lost = summary
                .error
                .as_ref()
                .map(|error| format!("{}: {error}", numbered(job.0, name.as_deref())));
            self.events.extend(lost.map(Event::Note));
            if let Some(error) = summary.error.clone().filter(|_| keep) {
                self.lost_output.0 += 1;
                self.lost_output.1.get_or_insert(error);
            }
            (end.stdout_bytes, end.stderr_bytes) = (summary.stdout_bytes, summary.stderr_bytes);
            end.output_truncated = summary.truncated;
            self.log.ended(&end, &summary, is_lost);
            last_lines = summary.tail;
        }
        let end = Box::new(end);
        self.events.push_back(Event::Ended { end, command, last_lines, name });
    }

    /// Records the end of a job.
    pub(super) fn settle(&mut self, number: JobNumber, end: &JobEnd) {
        let Some(live) = self.live.remove(number) else { return };
        let reason = match &end.cause {
            // The log has the reason.
            _ if live.is_past => None,
            None => None,
            Some(Cause::Failure(_) | Cause::Unstored) => {
                Some(live.failure.clone().unwrap_or_default())
            }
            Some(Cause::After(job)) => {
                let name = self.names_not_ok.get(job).map(|name| &**name);
                Some(format!("{} did not succeed", numbered(job.0, name)))
            }
            Some(Cause::Refusal(refusal)) => Some(refusal.to_string()),
        };
        self.conclude(number, &live, end, reason);
    }

    /// Notes the end of a job everywhere.
    pub(super) fn conclude(
        &mut self,
        number: JobNumber,
        live: &LiveJob,
        end: &JobEnd,
        reason: Option<String>,
    ) {
        // What ended in an earlier run stays as it is, also if the input has no place for it.
        let stands = match live.is_past {
            true => None,
            false => self.log.settled(number, live, end, reason.as_deref()),
        };
        let is_old = live.is_past || stands.is_some();
        let (outcome, reason) = stands.map_or((end.outcome, reason), |earlier| (earlier, None));
        // Somebody has to look at an unknown one in each run, and at one that the input has twice.
        let before = is_old && matches!(outcome, JobOutcome::Succeeded | JobOutcome::Failed);
        if let Some(output) = &mut self.output {
            output.settle(number.0);
        }
        let (job, id) = (number.0, live.id);
        let name = live.job.get_name().map(ToOwned::to_owned);
        let is_untold = matches!(outcome, JobOutcome::Skipped | JobOutcome::Refused);
        let argv = is_untold.then(|| live.job.argv(1).ok()).flatten();
        let command = argv.map(|argv| String::from_utf8_lossy(&shell_quoted(&argv)).into_owned());
        if let (
            Some(name),
            JobOutcome::Failed | JobOutcome::Skipped | JobOutcome::Refused | JobOutcome::Unknown,
        ) = (&name, outcome)
        {
            self.names_not_ok.insert(number, name.as_str().into());
        }
        let settled = Event::Settled { job, id, name, command, outcome, reason, before };
        self.events.push_back(settled);
    }
}
