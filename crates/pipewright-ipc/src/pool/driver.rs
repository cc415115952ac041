//! The one thread that drives a pool: it waits once for all of its workers and callers, and does what that
//! brought.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use pipewright::{CancelToken, Command};
use pipewright_os::base::wait::{self, Slot};

use super::counters::Counters;
use super::fleet::Fleet;
use super::job::Job;
use super::mailbox::{Letter, Mailbox};
use super::options::{PoolOptions, Schedule};
use super::request::Reply;
use super::rules::Files;
use super::worker::Worker;
use crate::channel::Piece;
use crate::error::{Error, ErrorKind};

/// What the thread has.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) command: Command,
    pub(super) options: PoolOptions,
    pub(super) workers: Vec<Worker>,
    /// Calls that no worker has.
    pub(super) waiting: VecDeque<Job>,
    pub(super) fleet: Fleet,
    pub(super) files: Files,
    /// The mailbox has them too.
    pub(super) counters: Arc<Counters>,
    /// Calls that are done, of which nobody was told yet.
    pub(super) ended: Vec<(Job, Result<Reply, Error>)>,
    /// It is to end, and so until when calls are answered.
    pub(super) ending: Option<(Schedule, Option<Instant>)>,
    /// Dropped last: who waits for the end finds no worker any more.
    pub(super) mailbox: Closing,
}

/// Nobody leaves anything for a driver that is no more.
#[derive(Debug)]
pub(super) struct Closing(pub(super) Arc<Mailbox>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Driver {
    pub(super) fn new(mailbox: Arc<Mailbox>, command: Command, options: PoolOptions) -> Driver {
        Driver {
            files: Files::of(&command, &options),
            command,
            fleet: Fleet::default(),
            counters: Arc::clone(&mailbox.counters),
            workers: Vec::new(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            ending: None,
            options,
            mailbox: Closing(mailbox),
        }
    }

    /// Goes on until it is told to end.
    pub(super) fn drive(mut self) {
        let mut letters = Vec::new();
        loop {
            self.mailbox.0.take(&mut letters);
            self.take_back();
            for letter in letters.drain(..) {
                if let Letter::Stop = letter {
                    return self.stop();
                }
                self.open(letter);
            }
            self.assign();
            self.talk();
            let now = Instant::now();
            self.look_at_the_clock(now);
            self.bury_the_dead(now);
            // Before anybody is let go: who is new and waited for has a call then.
            self.assign();
            self.keep_the_fleet(now);
            self.assign();
            let has_changed = self.talk();
            if self.ending.is_some() && self.workers.is_empty() && self.waiting.is_empty() {
                return;
            }
            // Without memory, or whatever else a wait may lack, nobody could be answered.
            if let Err(error) = self.wait(has_changed, now) {
                return self.fail(&Error::cannot("wait for workers")(error));
            }
        }
    }

    /// Ends all workers at once.
    fn stop(mut self) {
        for worker in &mut self.workers {
            worker.kill();
        }
    }

    /// Ends all calls for that reason, also those that are yet to come, and all workers.
    fn fail(mut self, why: &Error) {
        self.mailbox.0.fail(why.share());
        let open = self.workers.iter_mut().flat_map(|it| it.calls.drain(..)).map(|it| it.job);
        for job in open.chain(self.waiting.drain(..)) {
            job.end(Err(why.share()));
        }
        self.stop();
    }

    fn open(&mut self, letter: Letter) {
        match letter {
            // A worker that answers at once would be faster than any wait for the token.
            Letter::Call(job) if job.is_cancelled() => {
                self.counters.cancelled.add_one();
                job.end(Err(Error::new(ErrorKind::Cancelled)));
            }
            Letter::Call(job) => self.waiting.push_back(job),
            Letter::Cancel(id) => self.unwant(id, &mut || Error::new(ErrorKind::Cancelled)),
            Letter::Answer(id, answer) => self.answer(id, answer),
            Letter::Credit(id, more) => self.give_credit(id, more),
            Letter::Returned(returned) => drop(self.have_back(returned)),
            Letter::Rest(rest) => self.go_on_with(*rest),
            Letter::ShutDown(schedule) => {
                self.ending = Some((schedule, Instant::now().checked_add(schedule.drain)));
            }
            Letter::Stop => {}
        }
    }

    /// Sends and receives what can be without waiting. Whether that has changed anything: a worker that was
    /// starting or busy may be free now, and nothing else would tell.
    fn talk(&mut self) -> bool {
        let mut heard: Vec<Piece> = Vec::new();
        let mut has_changed = false;
        for at in 0..self.workers.len() {
            let Some(worker) = self.workers.get_mut(at) else { return has_changed };
            if !worker.is_due {
                continue;
            }
            let before = (worker.phase, worker.fault.is_some());
            worker.go_on(&mut heard);
            let after = (worker.phase, worker.fault.is_some());
            has_changed |= !heard.is_empty() || before != after;
            for piece in heard.drain(..) {
                let said = self.hear(at, piece);
                self.give_up_where(at, said);
            }
            // Before they are told: who calls again at once finds the worker free.
            self.lend(at);
            for (job, result) in self.ended.drain(..) {
                job.end(result);
            }
        }
        has_changed
    }

    /// Waits until there is something to do after what was done at that time; or only looks what there is.
    fn wait(&mut self, only_look: bool, now: Instant) -> std::io::Result<()> {
        let mut may_wait = !only_look;
        for at in 0..self.workers.len() {
            may_wait &= self.settle(at, may_wait);
        }
        // Last: who leaves something from now on wakes us.
        may_wait &= self
            .mailbox
            .0
            .fall_asleep(self.waiting.len(), self.workers.iter().map(Worker::standing));
        let began = Instant::now();
        let until = if may_wait { self.next_step(now) } else { Some(began) };
        let tokens: Vec<CancelToken> = self.tokens();
        let mut slots = vec![Slot::Event(self.mailbox.0.wake())];
        for worker in &mut self.workers {
            slots.extend(worker.submit());
        }
        let first_token = slots.len();
        for token in &tokens {
            slots.push(Slot::Event(token.wake()?));
        }
        let waited = wait::any(&mut slots, until);
        let slept = began.elapsed();
        let woken: Vec<bool> =
            slots.drain(first_token..).map(|slot| matches!(slot, Slot::EventDone)).collect();
        let mut slots = slots.into_iter().skip(1).map(Slot::detach).collect::<Vec<_>>().into_iter();
        for worker in &mut self.workers {
            let mut next = || slots.next().unwrap_or_default();
            let five = [next(), next(), next(), next(), next()];
            worker.take_back(five, slept, self.options.on_line.as_ref());
        }
        waited?;
        if tokens.iter().zip(woken).any(|(token, woken)| woken && !is_heeded(token)) {
            self.heed_tokens();
        }
        Ok(())
    }

    /// The tokens of all calls, each once.
    fn tokens(&self) -> Vec<CancelToken> {
        let mut seen = HashSet::new();
        let open = self.workers.iter().flat_map(|it| &it.calls);
        let open = open.filter(|call| call.unwanted_until.is_none()).map(|call| &call.job);
        let tokens = self.waiting.iter().chain(open).filter_map(|job| job.token.as_ref());
        let is_new = |token: &&CancelToken| {
            token.wake().is_ok_and(|wake| seen.insert(std::ptr::from_ref(wake)))
        };
        tokens.filter(is_new).cloned().collect()
    }

    /// Ends the calls whose token is cancelled.
    fn heed_tokens(&mut self) {
        let open = self.workers.iter().flat_map(|it| &it.calls);
        let open = open.filter(|call| call.unwanted_until.is_none()).map(|call| &call.job);
        let cancelled = self.waiting.iter().chain(open).filter(|job| job.is_cancelled());
        let ids: Vec<u64> = cancelled.map(|job| job.id).collect();
        for id in ids {
            self.unwant(id, &mut || Error::new(ErrorKind::Cancelled));
        }
    }

    /// When something is next, whatever happens.
    fn next_step(&self, now: Instant) -> Option<Instant> {
        let calls = self.workers.iter().flat_map(|it| &it.calls);
        let calls = calls.filter_map(|call| call.unwanted_until.or(call.job.until));
        let waiting = self.waiting.iter().filter_map(|job| job.until);
        let steps = self.workers.iter().filter_map(Worker::next_step);
        let drain = self.ending.and_then(|(_, until)| until);
        let fleet = self.fleet_step(now);
        calls.chain(waiting).chain(steps).chain(drain).chain(fleet).min()
    }
}

/// A signal that is on its way to somebody's child is none of ours.
pub(super) fn is_heeded(token: &CancelToken) -> bool {
    if token.is_cancelled() {
        return false;
    }
    token.take_signals();
    true
}
