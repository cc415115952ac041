//! The calls of a pool: assignment, messages of workers, cancellation and deadlines.

use std::sync::Arc;
use std::time::Instant;

use super::PoolDriver;
use crate::connection::RawMessage;
use crate::error::{Error, ErrorKind, Peer};
use crate::pool::call::QueuedCall;
use crate::pool::request::Reply;
use crate::pool::worker::{ActiveCall, Worker, WorkerPhase};
use crate::wire::kind;

impl PoolDriver {
    /// Gives the waiting calls to workers that have room for them.
    pub(super) fn assign_calls(&mut self) {
        let now = Instant::now();
        let PoolDriver { options, files, .. } = self;
        let has_room = |it: &&mut Worker| it.is_serving() && options.free_slots(it, files, now) > 0;
        while !self.waiting.is_empty() {
            let free = self.workers.iter_mut().filter(has_room);
            // The worker with the fewest calls; of several, the one used last, so that the others can be retired.
            let order = |it: &&mut Worker| (it.calls.len(), std::cmp::Reverse(it.last_used));
            let Some(worker) = free.min_by_key(order) else { return };
            let Some(mut call) = self.waiting.pop_front() else { return };
            if let Err(error) = check_suits(worker, &call) {
                call.end(Err(error));
                continue;
            }
            call.attempts += 1;
            if call.window > 0 {
                worker.send_credit(call.id, call.window);
            }
            let kind = if call.items.is_some() { kind::OPEN_CALL } else { kind::CALL };
            worker.send(kind, call.id, call.body());
            if call.items.as_ref().is_some_and(|items| items.has_ended()) {
                worker.send(kind::ITEMS_END, call.id, Arc::default());
            }
            worker.calls.push(ActiveCall::new(call));
        }
    }

    /// Handles a message of a worker. Its header was checked, but not against the messages before it in the same turn.
    pub(super) fn handle_message(&mut self, at: usize, message: RawMessage) -> Result<(), Error> {
        let RawMessage { kind, id, bytes } = message;
        let Some(worker) = self.workers.get_mut(at) else { return Ok(()) };
        if let (WorkerPhase::Resetting(_), 0) = (worker.phase, id) {
            return finish_reset(worker, kind);
        }
        let Some(index) = worker.calls.iter().position(|active| active.call.id == id) else {
            return Err(Error::protocol("a reply to a call that the worker does not have"));
        };
        match kind {
            kind::REPLY | kind::FAILED => {
                let active = worker.calls.swap_remove(index);
                worker.jobs.add_one();
                worker.exceeds_memory |= self.options.exceeds_memory(worker);
                worker.last_used = Instant::now();
                if let (Some(timeout), true) = (self.options.reset_timeout, worker.calls.is_empty())
                {
                    worker.start_reset(timeout);
                }
                self.starts.note_success();
                if active.is_cancelled {
                    return Ok(());
                }
                let (worker, attempts) = (worker.number, active.call.attempts);
                if kind == kind::REPLY {
                    self.counters.replies.add_one();
                    self.ended.push((active.call, Ok(Reply { body: bytes, worker, attempts })));
                } else {
                    self.counters.failures.add_one();
                    self.ended.push((active.call, Err(Error::failed(&bytes))));
                }
            }
            kind::ITEM => {
                let Some(active) = worker.calls.get_mut(index) else { return Ok(()) };
                let left = active.credit.checked_sub(1);
                active.credit = left.ok_or_else(|| Error::protocol("an item without credit"))?;
                active.call.report_item(bytes);
            }
            kind::CREDIT => {
                let Some(active) = worker.calls.get(index) else { return Ok(()) };
                let more = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                if let Some(items) = &active.call.items {
                    items.add(more);
                }
            }
            kind::ASK => {
                let Some(active) = worker.calls.get_mut(index) else { return Ok(()) };
                if std::mem::replace(&mut active.has_question, true) {
                    return Err(Error::protocol("a second question before the first was answered"));
                }
                active.call.report_question(bytes);
            }
            kind => return Err(Error::protocol(format!("a frame of kind {kind} from a worker"))),
        }
        Ok(())
    }

    /// Ends a call with this error, and cancels it at its worker.
    pub(super) fn cancel_call(&mut self, id: u64, reason: &mut dyn FnMut() -> Error) {
        let until = Instant::now().checked_add(self.options.cancel_grace);
        if let Some(index) = self.waiting.iter().position(|call| call.id == id) {
            if let Some(call) = self.waiting.remove(index) {
                self.counters.cancelled.add_one();
                call.end(Err(reason()));
            }
            return;
        }
        let Some((worker, index)) = find(&mut self.workers, id) else { return };
        let Some(active) = worker.calls.get_mut(index) else { return };
        if active.is_cancelled {
            return;
        }
        self.counters.cancelled.add_one();
        active.call.end(Err(reason()));
        (active.is_cancelled, active.cancel_deadline) = (true, until);
        if worker.withdraw(id) {
            worker.calls.swap_remove(index);
        } else {
            worker.send(kind::CANCEL, id, Arc::default());
        }
    }

    /// Ends calls and workers whose deadline has passed.
    pub(super) fn enforce_deadlines(&mut self, now: Instant) {
        let has_passed = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let waiting = self.waiting.iter().filter(|call| has_passed(call.until));
        let late: Vec<u64> = waiting.map(|call| call.id).collect();
        if !late.is_empty() {
            let error = self.no_worker_in_time();
            late.into_iter().for_each(|id| self.cancel_call(id, &mut || error.share()));
        }
        let mut late = Vec::new();
        for worker in &mut self.workers {
            let is_late = worker.calls.iter().any(|active| has_passed(active.cancel_deadline));
            if is_late && worker.fault.is_none() {
                let peer = worker.as_peer();
                worker.fail(timed_out("the end of a cancelled call", peer));
            }
            let open = worker.calls.iter().filter(|active| !active.is_cancelled);
            let open = open.filter(|active| has_passed(active.call.until));
            late.extend(open.map(|active| (active.call.id, worker.as_peer())));
        }
        for (id, peer) in late {
            self.cancel_call(id, &mut || timed_out("a reply", peer));
        }
        let schedule = self.shutdown.map_or(self.options.shutdown, |(schedule, _)| schedule);
        for worker in &mut self.workers {
            worker.enforce_schedule(now, schedule);
        }
    }
}

/// Returns an error if the worker cannot get the call.
fn check_suits(worker: &Worker, call: &QueuedCall) -> Result<(), Error> {
    if call.items.is_some() && !worker.takes_items {
        return Err(Error::new(ErrorKind::Unsupported { capability: "streams.v1" }));
    }
    worker.check_length(&call.body())
}

/// Returns the worker that has the call, and the call's index there.
pub(super) fn find(workers: &mut [Worker], id: u64) -> Option<(&mut Worker, usize)> {
    workers.iter_mut().find_map(|worker| {
        let index = worker.calls.iter().position(|active| active.call.id == id)?;
        Some((worker, index))
    })
}

/// Handles the answer to a RESET.
fn finish_reset(worker: &mut Worker, kind: u8) -> Result<(), Error> {
    if kind != kind::RESET_DONE {
        return Err(Error::protocol("the worker cannot be reset"));
    }
    worker.phase = WorkerPhase::Serving;
    Ok(())
}

fn timed_out(waiting_for: &'static str, peer: Peer) -> Error {
    Error::new(ErrorKind::TimedOut { waiting_for, peer })
}
