//! How many workers there are: who is started, who is let go, and what the end of one means.

use std::time::{Duration, Instant};

use pipewright::ExitStatus;

use super::driver::Driver;
use super::worker::{Phase, Worker};
use crate::error::{Error, ErrorKind, Peer};
use crate::trace;

/// Without any, a program that cannot be started would be tried again and again, and nobody be heard meanwhile.
const LEAST_BACKOFF: Duration = Duration::from_millis(1);

/// What is known of the workers so far.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    /// How many were started.
    started: u64,
    /// Starts in vain since one succeeded.
    vain_starts: u32,
    /// Why the last of them was in vain.
    last_vain: Option<Error>,
    /// Workers that ended without having answered anything, since one did.
    crashes: u32,
    /// No worker is started before.
    not_before: Option<Instant>,
}

impl Fleet {
    /// A worker has answered something.
    pub(super) fn note_success(&mut self) {
        (self.vain_starts, self.crashes, self.last_vain) = (0, 0, None);
    }
}

impl Driver {
    /// Starts workers, and lets them go.
    pub(super) fn keep_the_fleet(&mut self, now: Instant) {
        if self.ending.is_some() {
            self.end_the_fleet(now);
            if self.waiting.is_empty() {
                return;
            }
        } else {
            self.files.look(now);
            self.replace_the_used(now);
            self.let_the_idle_go(now);
        }
        let most = self.options.max_workers.max(1);
        loop {
            let mut alive = 0;
            let mut room = 0;
            for worker in self.workers.iter().filter(|it| !matches!(it.phase, Phase::Leaving(..))) {
                alive += 1;
                room += self.options.room(worker, &self.files, now);
            }
            let is_wanted = alive < self.least() || self.waiting.len() > room;
            let is_early = self.fleet.not_before.is_some_and(|time| now < time);
            // The pause before the next start begins when that one has ended.
            let has_failed = self.workers.iter().any(Worker::has_failed_to_start);
            if alive >= most || !is_wanted || is_early || has_failed {
                return;
            }
            self.start_one(now);
        }
    }

    /// So many workers are kept.
    fn least(&self) -> usize {
        if self.ending.is_some() { 0 } else { self.options.min_workers }
    }

    fn start_one(&mut self, now: Instant) {
        self.fleet.started += 1;
        let (number, kept) = (self.fleet.started, self.options.kept_output_bytes);
        match Worker::start(
            (number, self.files.version),
            &mut self.command,
            &self.options.channel,
            kept,
        ) {
            Ok(worker) => {
                trace::worker_started(worker.number, worker.child.id());
                self.counters.started.add_one();
                self.workers.push(worker);
            }
            Err(error) => self.note_vain_start(now, &error),
        }
    }

    /// A worker could not be started. After some of them, whoever waits is told.
    fn note_vain_start(&mut self, now: Instant, error: &Error) {
        trace::worker_not_started(error);
        self.counters.failed_starts.add_one();
        self.fleet.vain_starts += 1;
        self.back_off(now, self.fleet.vain_starts);
        self.fleet.last_vain = Some(error.share());
        let nobody_serves = !self.workers.iter().any(Worker::is_serving);
        if self.fleet.vain_starts >= self.options.start_attempts && nobody_serves {
            for job in self.waiting.drain(..) {
                job.end(Err(error.share()));
            }
        }
    }

    /// The time of a call is over that no worker was free for: with the reason why there is none.
    pub(super) fn no_worker_in_time(&self) -> Error {
        let kind = ErrorKind::TimedOut { waiting_for: "a worker", peer: Peer::Nobody };
        match &self.fleet.last_vain {
            Some(why) if !self.workers.iter().any(Worker::is_in_service) => {
                Error::caused(kind, why.share())
            }
            _ => Error::new(kind),
        }
    }

    fn back_off(&mut self, now: Instant, times: u32) {
        let doubled = 1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = self.options.backoff.saturating_mul(doubled).min(self.options.max_backoff);
        self.fleet.not_before = now.checked_add(pause.max(LEAST_BACKOFF));
    }

    /// Lets those go that are not to be used any more.
    fn replace_the_used(&mut self, now: Instant) {
        for worker in self.workers.iter_mut().filter(|it| it.is_serving()) {
            if worker.calls.is_empty() && self.options.is_used_up(worker, &self.files, now) {
                self.counters.retired.add_one();
                worker.let_go(self.options.shutdown);
            }
        }
    }

    fn let_the_idle_go(&mut self, now: Instant) {
        let Some(timeout) = self.options.idle_timeout else { return };
        let mut left = self.workers.iter().filter(|it| it.is_in_service()).count();
        let mut idle: Vec<&mut Worker> =
            self.workers.iter_mut().filter(|it| it.is_serving() && it.calls.is_empty()).collect();
        idle.sort_by_key(|it| it.last_used);
        for worker in idle {
            let is_over = now.saturating_duration_since(worker.last_used) >= timeout;
            if left > self.options.min_workers && is_over {
                left -= 1;
                self.counters.retired.add_one();
                worker.let_go(self.options.shutdown);
            }
        }
    }

    /// Lets everyone go who has no call, and everyone when the time for calls is over.
    fn end_the_fleet(&mut self, now: Instant) {
        let Some((schedule, until)) = self.ending else { return };
        let is_over = until.is_some_and(|until| until <= now);
        if is_over {
            self.waiting.clear();
            self.ending = Some((schedule, None));
        }
        for worker in &mut self.workers {
            if is_over {
                for call in worker.calls.drain(..) {
                    call.job.end(Err(Error::new(ErrorKind::ShutDown)));
                }
            }
            if worker.calls.is_empty() && self.waiting.is_empty() {
                worker.let_go(schedule);
            }
        }
    }

    /// When there is something to do for the fleet that was not to be done at that time. (Not now: what has become due
    /// since would be left out, and nothing else would tell.)
    pub(super) fn fleet_step(&self, now: Instant) -> Option<Instant> {
        let in_service = self.workers.iter().filter(|it| it.is_in_service());
        // A connection that is lent may come back at any moment, and nobody would tell.
        let since = |it: &Worker| if it.is_lent() { now } else { it.last_used };
        let oldest = in_service.clone().filter(|it| it.calls.is_empty()).map(since).min();
        let serving = in_service.count();
        let idle = match (oldest, self.options.idle_timeout) {
            (Some(since), Some(timeout)) if serving > self.options.min_workers => {
                since.checked_add(timeout)
            }
            _ => None,
        };
        let old = self.options.max_age.and_then(|most| {
            let idle = self.workers.iter().filter(|it| it.is_serving() && it.calls.is_empty());
            idle.map(|it| it.started).min()?.checked_add(most)
        });
        let is_wanted = !self.waiting.is_empty() || serving < self.least();
        let start = self.fleet.not_before.filter(|time| is_wanted && *time > now);
        idle.into_iter().chain(old).chain(start).min()
    }

    /// Tells whoever has called a worker that has ended, or asks another one.
    pub(super) fn bury_the_dead(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(worker) = self.workers.get(at) {
            if worker.is_over() {
                let worker = self.workers.swap_remove(at);
                self.bury(worker, now);
            } else {
                at += 1;
            }
        }
    }

    fn bury(&mut self, mut worker: Worker, now: Instant) {
        let (status, last_words) = worker.bury(self.options.on_line.as_ref());
        let mut fault = worker.fault.take();
        if !worker.was_killed {
            // Its status says it all.
            fault = fault.filter(|fault| !fault.is_disconnect());
        }
        let (pid, has_served) = (worker.child.id(), worker.has_served);
        let death = Death { pid, has_served, status, last_words, fault };
        let error = (!worker.is_retired).then(|| death.error());
        trace::worker_ended(&trace::End {
            worker: worker.number,
            pid: death.pid,
            jobs: worker.jobs.get(),
            status,
            last_words: &death.last_words,
            why: error.as_ref(),
        });
        if !worker.is_retired {
            if worker.has_served {
                self.counters.died.add_one();
                if worker.jobs.get() == 0 {
                    self.fleet.crashes += 1;
                    self.back_off(now, self.fleet.crashes);
                }
            } else {
                self.note_vain_start(now, &death.error());
            }
        }
        for call in std::mem::take(&mut worker.calls) {
            if call.unwanted_until.is_some() {
                continue;
            }
            let mut job = call.job;
            let was_sent = !worker.unsend(job.id);
            job.attempts -= u32::from(!was_sent);
            let may_retry =
                job.idempotent && !job.has_spoken && job.attempts <= self.options.retries;
            if !was_sent || may_retry {
                if was_sent {
                    self.counters.retries.add_one();
                }
                // It has waited already.
                self.waiting.push_front(job);
            } else {
                self.counters.lost.add_one();
                job.end(Err(death.error()));
            }
        }
    }
}

/// How a worker ended.
struct Death {
    pid: u32,
    /// The handshake was over: calls may have been lost with it.
    has_served: bool,
    status: Option<ExitStatus>,
    last_words: String,
    fault: Option<Error>,
}

impl Death {
    fn error(&self) -> Error {
        let Death { pid, has_served, status, last_words, fault } = self;
        if !has_served {
            return self.without_handshake();
        }
        let kind = ErrorKind::Lost { pid: *pid, status: *status, last_words: last_words.clone() };
        match fault {
            Some(fault) => Error::caused(kind, fault.share()),
            None => Error::new(kind),
        }
    }

    fn without_handshake(&self) -> Error {
        let Death { pid, status, last_words, fault, .. } = self;
        let no_handshake =
            |status, cause| Error::no_handshake((*pid, status), last_words.clone(), cause);
        match fault {
            None => no_handshake(*status, None),
            // The status would be that of our kill.
            Some(fault) if fault.is_disconnect() => no_handshake(None, None),
            Some(fault) if fault.is_timeout() => no_handshake(None, Some(fault)),
            Some(fault) => fault.share(),
        }
    }
}
