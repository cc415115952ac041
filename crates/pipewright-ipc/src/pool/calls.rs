//! What becomes of calls: who gets them, what is heard of them, and when nobody wants them any more.

use std::sync::Arc;
use std::time::Instant;

use super::driver::Driver;
use super::request::Reply;
use super::worker::{OpenCall, Phase, Worker};
use crate::channel::Piece;
use crate::error::{Error, ErrorKind, Peer};
use crate::wire::kind;

impl Driver {
    /// Gives the calls that wait to the workers that can take them.
    pub(super) fn assign(&mut self) {
        let now = Instant::now();
        let Driver { options, files, .. } = self;
        let has_room = |it: &&mut Worker| it.is_serving() && options.room(it, files, now) > 0;
        while !self.waiting.is_empty() {
            let free = self.workers.iter_mut().filter(has_room);
            // Whoever has least to do; of those the one that worked last, so that others can be let go.
            let order = |it: &&mut Worker| (it.calls.len(), std::cmp::Reverse(it.last_used));
            let Some(worker) = free.min_by_key(order) else { return };
            let Some(mut job) = self.waiting.pop_front() else { return };
            if let Err(error) = worker.has_agreed_to(&job.body()) {
                job.end(Err(error));
                continue;
            }
            job.attempts += 1;
            if job.window > 0 {
                let credit = Arc::new(job.window.to_le_bytes().to_vec());
                worker.send(kind::CREDIT, job.id, credit);
            }
            worker.send(kind::CALL, job.id, job.body());
            let credit = job.window;
            worker.calls.push(OpenCall { job, unwanted_until: None, credit, has_asked: false });
        }
    }

    /// What a worker has said.
    pub(super) fn hear(&mut self, at: usize, piece: Piece) -> Result<(), Error> {
        let Piece { kind, id, bytes } = piece;
        let Some(worker) = self.workers.get_mut(at) else { return Ok(()) };
        if let (Phase::Resetting(_), 0) = (worker.phase, id) {
            return reset(worker, kind);
        }
        let Some(place) = worker.calls.iter().position(|call| call.job.id == id) else {
            return Err(Error::protocol("an answer to a call that it does not have"));
        };
        match kind {
            kind::REPLY | kind::FAILED => {
                let call = worker.calls.swap_remove(place);
                worker.jobs.add_one();
                worker.has_grown |= self.options.has_grown(worker);
                worker.last_used = Instant::now();
                if let (Some(timeout), true) = (self.options.reset_timeout, worker.calls.is_empty())
                {
                    worker.reset(timeout);
                }
                self.fleet.note_success();
                if call.unwanted_until.is_some() {
                    return Ok(());
                }
                let (worker, attempts) = (worker.number, call.job.attempts);
                if kind == kind::REPLY {
                    self.counters.replies.add_one();
                    self.ended.push((call.job, Ok(Reply { body: bytes, worker, attempts })));
                } else {
                    self.counters.failures.add_one();
                    self.ended.push((call.job, Err(Error::failed(&bytes))));
                }
            }
            kind::ITEM => {
                let Some(call) = worker.calls.get_mut(place) else { return Ok(()) };
                let left = call.credit.checked_sub(1);
                call.credit =
                    left.ok_or_else(|| Error::protocol("more of an answer than was asked for"))?;
                call.job.item(bytes);
            }
            kind::ASK => {
                let Some(call) = worker.calls.get_mut(place) else { return Ok(()) };
                if std::mem::replace(&mut call.has_asked, true) {
                    return Err(Error::protocol("two questions at a time"));
                }
                call.job.ask(bytes);
            }
            kind => return Err(Error::protocol(format!("a frame of kind {kind} as an answer"))),
        }
        Ok(())
    }

    /// Tells a worker what it has asked for.
    pub(super) fn answer(&mut self, id: u64, answer: Result<Vec<u8>, String>) {
        let Some((worker, place)) = find(&mut self.workers, id) else { return };
        let Some(call) = worker.calls.get_mut(place) else { return };
        if !std::mem::replace(&mut call.has_asked, false) || call.unwanted_until.is_some() {
            return;
        }
        let answer = answer.and_then(|bytes| match worker.has_agreed_to(&bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(error.to_string()),
        });
        let (kind, bytes) = match answer {
            Ok(bytes) => (kind::ANSWER, bytes),
            Err(why) => (kind::DECLINED, why.into_bytes()),
        };
        worker.send(kind, id, Arc::new(bytes));
    }

    /// Lets a worker send so many pieces more.
    pub(super) fn give_credit(&mut self, id: u64, more: u32) {
        let Some((worker, place)) = find(&mut self.workers, id) else { return };
        let Some(call) = worker.calls.get_mut(place) else { return };
        call.credit = call.credit.saturating_add(more);
        worker.send(kind::CREDIT, id, Arc::new(more.to_le_bytes().to_vec()));
    }

    /// Nobody wants that call any more.
    pub(super) fn unwant(&mut self, id: u64, why: &mut dyn FnMut() -> Error) {
        let until = Instant::now().checked_add(self.options.cancel_grace);
        if let Some(place) = self.waiting.iter().position(|job| job.id == id) {
            if let Some(job) = self.waiting.remove(place) {
                self.counters.cancelled.add_one();
                job.end(Err(why()));
            }
            return;
        }
        let Some((worker, place)) = find(&mut self.workers, id) else { return };
        let Some(call) = worker.calls.get_mut(place) else { return };
        if call.unwanted_until.is_some() {
            return;
        }
        self.counters.cancelled.add_one();
        call.job.end(Err(why()));
        call.unwanted_until = until;
        if worker.unsend(id) {
            worker.calls.swap_remove(place);
        } else {
            worker.send(kind::CANCEL, id, Arc::default());
        }
    }

    /// Ends what takes too long.
    pub(super) fn look_at_the_clock(&mut self, now: Instant) {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let waiting = self.waiting.iter().filter(|job| is_over(job.until));
        let late: Vec<u64> = waiting.map(|job| job.id).collect();
        if !late.is_empty() {
            let error = self.no_worker_in_time();
            late.into_iter().for_each(|id| self.unwant(id, &mut || error.share()));
        }
        let mut late = Vec::new();
        for worker in &mut self.workers {
            if worker.calls.iter().any(|call| is_over(call.unwanted_until)) {
                let peer = worker.as_peer();
                worker.give_up(timed_out("the end of a call that nobody wants", peer));
            }
            let wanted = worker.calls.iter().filter(|call| call.unwanted_until.is_none());
            let wanted = wanted.filter(|call| is_over(call.job.until));
            late.extend(wanted.map(|call| (call.job.id, worker.as_peer())));
        }
        for (id, peer) in late {
            self.unwant(id, &mut || timed_out("a reply", peer));
        }
        let schedule = self.ending.map_or(self.options.shutdown, |(schedule, _)| schedule);
        for worker in &mut self.workers {
            worker.keep_to_schedule(now, schedule);
        }
    }
}

/// Returns the worker that has the call of that number, and the call's place there.
fn find(workers: &mut [Worker], id: u64) -> Option<(&mut Worker, usize)> {
    workers.iter_mut().find_map(|worker| {
        let place = worker.calls.iter().position(|call| call.job.id == id)?;
        Some((worker, place))
    })
}

/// What a worker has said of its reset.
fn reset(worker: &mut Worker, kind: u8) -> Result<(), Error> {
    if kind != kind::RESET_DONE {
        return Err(Error::protocol("it cannot be reset"));
    }
    worker.phase = Phase::Serving;
    Ok(())
}

fn timed_out(waiting_for: &'static str, peer: Peer) -> Error {
    Error::new(ErrorKind::TimedOut { waiting_for, peer })
}
