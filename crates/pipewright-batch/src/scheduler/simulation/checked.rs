//! The checks of the model: each decision, and the state after each event.

use std::time::Duration;

use super::model::{Last, Model, Phase, Why};
use crate::scheduler::tests::{NOT_RUN, STOPPED, SUCCEEDED, UNKNOWN, failed};
use crate::scheduler::*;
use crate::vocabulary::{Failure, JobOutcome};

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
