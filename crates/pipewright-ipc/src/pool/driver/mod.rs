//! The thread that drives a pool: it waits for all workers and callers at once, and handles their events.
//!
//! Calls are here, and the start, retirement and replacement of workers; `ended.rs` handles their end.

mod ended;

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs};

use pipewright::{CancelToken, Command};
use pipewright_os::base::wait::{self, Slot};

use super::Reply;
use super::mailbox::{
    Counters, DriverCommand, Mailbox, QueuedCall, QueuedEvent, ReturnedConnection, UnfinishedCall,
    is_cancelled,
};
use super::options::{PoolOptions, Schedule};
use super::worker::{ActiveCall, Worker, WorkerPhase, WorkerSlots};
use crate::connection::RawMessage;
use crate::error::{Error, ErrorKind, Peer};
use crate::trace;
use crate::wire::{self, MAX_CALLS, kind};

/// The pause before the next try after a wait has failed.
const RETRY_WAIT: Duration = Duration::from_millis(10);

/// The state of the thread.
#[derive(Debug)]
pub(super) struct PoolDriver {
    command: Command,
    options: PoolOptions,
    workers: Vec<Worker>,
    /// Calls that no worker has.
    waiting: VecDeque<QueuedCall>,
    starts: StartHistory,
    files: WatchedFiles,
    /// Shared with the mailbox.
    counters: Arc<Counters>,
    /// Results that were not delivered to their callers yet.
    ended: Vec<(QueuedCall, Result<Reply, Error>)>,
    /// The pool shuts down: the schedule, and the deadline of calls.
    shutdown: Option<(Schedule, Option<Instant>)>,
    /// Dropped last: when a wait for the end of the driver returns, all workers were dropped.
    mailbox: EndOnDrop,
}

/// Ends the mailbox with the driver.
#[derive(Debug)]
struct EndOnDrop(Arc<Mailbox>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl PoolDriver {
    pub(super) fn new(mailbox: Arc<Mailbox>, command: Command, options: PoolOptions) -> PoolDriver {
        PoolDriver {
            files: WatchedFiles::of(&command, &options),
            command,
            starts: StartHistory::default(),
            counters: Arc::clone(&mailbox.counters),
            workers: Vec::new(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            shutdown: None,
            options,
            mailbox: EndOnDrop(mailbox),
        }
    }

    /// Runs until the pool is dropped or shut down.
    pub(super) fn run(mut self) {
        self.mailbox.0.note_driver();
        let mut commands = Vec::new();
        // A wait has failed: no call can get a reply before one succeeds.
        let mut cannot_wait = false;
        loop {
            self.mailbox.0.take(&mut commands);
            self.take_back();
            for command in commands.drain(..) {
                if let DriverCommand::Stop = command {
                    return self.stop_workers();
                }
                self.execute(command);
            }
            if cannot_wait {
                if let Err(error) = self.wait(true, Instant::now()) {
                    self.end_all(&Error::cannot("wait for workers")(error));
                    if self.shutdown.is_some() {
                        return;
                    }
                    std::thread::park_timeout(RETRY_WAIT);
                    continue;
                }
                cannot_wait = false;
            }
            self.assign_calls();
            self.exchange_messages();
            let now = Instant::now();
            self.enforce_deadlines(now);
            self.remove_ended_workers(now);
            // Before workers are retired: a new one that calls wait for has a call then.
            self.assign_calls();
            self.adjust_workers(now);
            self.assign_calls();
            let has_changed = self.exchange_messages();
            // One that does not end although it was killed is nothing to wait for.
            let has_workers = !self.workers.iter().all(Worker::is_abandoned);
            if self.shutdown.is_some() && !has_workers && self.waiting.is_empty() {
                return self.stop_workers();
            }
            // Without memory, or another resource that a wait needs, no call could get a reply.
            if let Err(error) = self.wait(has_changed, now) {
                self.end_all(&Error::cannot("wait for workers")(error));
                cannot_wait = true;
            }
        }
    }

    /// Removes workers that have ended, and ends their calls or gives them to other workers.
    fn remove_ended_workers(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(worker) = self.workers.get(at) {
            if worker.has_ended() {
                let worker = self.workers.swap_remove(at);
                self.handle_end(worker, now);
                continue;
            }
            if worker.is_abandoned() && !worker.calls.is_empty() {
                self.end_calls_of_abandoned(at);
            }
            at += 1;
        }
    }

    /// Kills all workers.
    fn stop_workers(&mut self) {
        for worker in &mut self.workers {
            worker.stop();
        }
    }

    /// Ends all calls with this error, and all workers.
    fn end_all(&mut self, error: &Error) {
        let active = self.workers.iter_mut().flat_map(|it| it.calls.drain(..)).map(|it| it.call);
        for call in active.chain(self.waiting.drain(..)) {
            call.end(Err(error.share()));
        }
        self.stop_workers();
        self.workers.clear();
    }

    fn execute(&mut self, command: DriverCommand) {
        match command {
            // Checked here, because a worker could reply before a wait notices the token.
            DriverCommand::Call(call) if call.is_cancelled() => {
                self.counters.cancelled.add_one();
                call.end(Err(Error::new(ErrorKind::Cancelled)));
            }
            DriverCommand::Call(call) => self.waiting.push_back(call),
            DriverCommand::Cancel(id) => {
                self.cancel_call(id, &mut || Error::new(ErrorKind::Cancelled));
            }
            DriverCommand::Answer(id, answer) => self.answer(id, answer),
            DriverCommand::Credit(id, more) => self.give_credit(id, more),
            DriverCommand::Item(id, bytes) => self.send_item(id, bytes),
            DriverCommand::EndItems(id) => self.end_items(id),
            DriverCommand::Return(returned) => drop(self.accept_returned(returned)),
            DriverCommand::Finish(unfinished) => self.finish(*unfinished),
            DriverCommand::ShutDown(schedule) => {
                self.shutdown = Some((schedule, Instant::now().checked_add(schedule.drain)));
            }
            DriverCommand::Stop => {}
        }
    }

    /// Sends and receives without waiting. Returns true if a state has changed: a worker that was starting or busy may
    /// be free now, and no event reports that.
    fn exchange_messages(&mut self) -> bool {
        let mut received: Vec<RawMessage> = Vec::new();
        let mut has_changed = false;
        for at in 0..self.workers.len() {
            let Some(worker) = self.workers.get_mut(at) else { return has_changed };
            if !worker.is_due {
                continue;
            }
            let before = (worker.phase, worker.fault.is_some());
            worker.exchange(&mut received);
            let after = (worker.phase, worker.fault.is_some());
            has_changed |= !received.is_empty() || before != after;
            // All at once: a caller that is woken for each would sleep in between.
            for message in received.drain(..) {
                let handled = self.handle_message(at, message);
                self.fail_worker_on_error(at, handled);
            }
            // Before the callers get their results, so that one that calls again at once finds the worker idle.
            self.lend(at);
            for (call, result) in self.ended.drain(..) {
                call.end(result);
            }
        }
        has_changed
    }

    /// Waits for an event, or for the next deadline after `now`. With `only_look`, only checks for events.
    fn wait(&mut self, only_look: bool, now: Instant) -> std::io::Result<()> {
        let mut may_wait = !only_look;
        for at in 0..self.workers.len() {
            may_wait &= self.prepare_wait(at, may_wait);
        }
        // Last: from now on, each command wakes the thread.
        may_wait &= self
            .mailbox
            .0
            .fall_asleep(self.waiting.len(), self.workers.iter().map(Worker::snapshot));
        let began = Instant::now();
        let until = if may_wait { self.next_deadline(now) } else { Some(began) };
        let tokens: Vec<CancelToken> = self.tokens();
        let mut slots = vec![Slot::Event(self.mailbox.0.wake())];
        for worker in &mut self.workers {
            slots.extend(worker.slots().into_array());
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
            let slots = WorkerSlots::take_from(&mut slots);
            worker.after_wait(slots, slept, self.options.on_line.as_ref());
        }
        waited?;
        if tokens.iter().zip(woken).any(|(token, woken)| woken && is_cancelled(token)) {
            self.cancel_by_tokens();
        }
        Ok(())
    }

    /// Returns the tokens of all calls, each once.
    fn tokens(&self) -> Vec<CancelToken> {
        let mut known = HashSet::new();
        let tokens = self.open_calls().filter_map(|call| call.token.as_ref());
        let is_new = |token: &&CancelToken| {
            token.wake().is_ok_and(|wake| known.insert(std::ptr::from_ref(wake)))
        };
        tokens.filter(is_new).cloned().collect()
    }

    /// Cancels the calls whose token is cancelled.
    fn cancel_by_tokens(&mut self) {
        let cancelled = self.open_calls().filter(|call| call.is_cancelled());
        let ids: Vec<u64> = cancelled.map(|call| call.id).collect();
        for id in ids {
            self.cancel_call(id, &mut || Error::new(ErrorKind::Cancelled));
        }
    }

    /// Returns the calls that were not cancelled.
    fn open_calls(&self) -> impl Iterator<Item = &QueuedCall> {
        let active = self.workers.iter().flat_map(|it| &it.calls);
        let active = active.filter(|it| !it.is_cancelled).map(|it| &it.call);
        self.waiting.iter().chain(active)
    }

    /// Returns the next time at which the thread has something to do even without an event.
    fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let until = |worker: &Worker, active: &ActiveCall| match active.is_cancelled {
            // Its worker is ended already.
            true if worker.fault.is_some() => None,
            true => active.cancel_deadline,
            false => active.call.until,
        };
        let calls = self
            .workers
            .iter()
            .flat_map(|worker| worker.calls.iter().filter_map(move |active| until(worker, active)));
        let waiting = self.waiting.iter().filter_map(|call| call.until);
        let phases = self.workers.iter().filter_map(Worker::phase_deadline);
        let drain = self.shutdown.and_then(|(_, until)| until);
        let workers = self.adjustment_deadline(now);
        calls.chain(waiting).chain(phases).chain(drain).chain(workers).min()
    }
}

// Calls: assignment, messages of workers, cancellation and deadlines.

impl PoolDriver {
    /// Gives the waiting calls to workers that have room for them.
    fn assign_calls(&mut self) {
        let now = Instant::now();
        let PoolDriver { options, files, .. } = self;
        let has_room =
            |it: &&mut Worker| it.is_serving() && options.room_for_calls(it, files, now) > 0;
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
    fn handle_message(&mut self, at: usize, message: RawMessage) -> Result<(), Error> {
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
                active.has_spoken = true;
                let left = active.credit.checked_sub(1);
                active.credit = left.ok_or_else(|| Error::protocol("an item without credit"))?;
                active.call.report(QueuedEvent::Item(bytes));
            }
            kind::CREDIT => {
                let Some(active) = worker.calls.get_mut(index) else { return Ok(()) };
                active.has_spoken = true;
                if let Some(items) = &active.call.items {
                    items.add(wire::credit(&bytes));
                }
            }
            kind::ASK => {
                let Some(active) = worker.calls.get_mut(index) else { return Ok(()) };
                active.has_spoken = true;
                if std::mem::replace(&mut active.has_question, true) {
                    return Err(Error::protocol("a second question before the first was answered"));
                }
                active.call.report(QueuedEvent::Question(bytes));
            }
            kind => return Err(Error::protocol(format!("a frame of kind {kind} from a worker"))),
        }
        Ok(())
    }

    /// Ends a call with this error, and cancels it at its worker.
    fn cancel_call(&mut self, id: u64, reason: &mut dyn FnMut() -> Error) {
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
    fn enforce_deadlines(&mut self, now: Instant) {
        let has_passed = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let waiting = self.waiting.iter().filter(|call| has_passed(call.until));
        let late: Vec<u64> = waiting.map(|call| call.id).collect();
        if !late.is_empty() {
            let error = self.no_worker_in_time();
            late.into_iter().for_each(|id| self.cancel_call(id, &mut || error.share()));
        }
        let mut late = Vec::new();
        for worker in &mut self.workers {
            let late_end = worker.calls.iter().find(|active| has_passed(active.cancel_deadline));
            if let Some(active) = late_end.filter(|_| worker.fault.is_none()) {
                let peer = worker.as_peer_of(active);
                worker.fail(Error::timed_out("the end of a cancelled call", peer));
            }
            let open = worker.calls.iter().filter(|active| !active.is_cancelled);
            let open = open.filter(|active| has_passed(active.call.until));
            late.extend(open.map(|active| (active.call.id, worker.as_peer_of(active))));
        }
        for (id, peer) in late {
            self.cancel_call(id, &mut || Error::timed_out("a reply", peer));
        }
        let schedule = self.shutdown.map_or(self.options.shutdown, |(schedule, _)| schedule);
        for worker in &mut self.workers {
            worker.enforce_schedule(now, schedule);
        }
    }
}

impl PoolOptions {
    /// Returns true if a worker has to be replaced once it has no calls.
    fn needs_replacement(&self, worker: &Worker, files: &WatchedFiles, now: Instant) -> bool {
        let age = now.saturating_duration_since(worker.started);
        self.max_jobs.is_some_and(|most| worker.jobs.get() >= most)
            || self.max_age.is_some_and(|most| age >= most)
            || worker.version != files.version
            || worker.exceeds_memory
    }

    /// Returns the number of calls that a worker gets at a time: one if it is reset between calls.
    fn calls_at_a_time(&self) -> usize {
        if self.reset_timeout.is_some() { 1 } else { self.calls_per_worker.clamp(1, MAX_CALLS) }
    }

    /// Returns the number of further calls that a worker may get. It is 0 if the worker has to be replaced: otherwise
    /// it might never be without calls.
    fn room_for_calls(&self, worker: &Worker, files: &WatchedFiles, now: Instant) -> usize {
        let calls = worker.calls.len();
        // Each worker gets its first call: with a maximum age of zero there would be no reply at all.
        let is_new = worker.jobs.get() == 0 && calls == 0;
        if worker.version != files.version
            || (!is_new && self.needs_replacement(worker, files, now))
        {
            return 0;
        }
        let left =
            self.max_jobs.map_or(u64::MAX, |most| most.max(1).saturating_sub(worker.jobs.get()));
        self.calls_at_a_time()
            .min(usize::try_from(left).unwrap_or(usize::MAX))
            .saturating_sub(calls)
    }

    /// Returns true if callers may borrow connections: not if the driver checks something after each call, or reports
    /// output with it.
    fn allows_direct_calls(&self) -> bool {
        let limits = self.max_jobs.is_some() || self.max_age.is_some();
        let checks = self.max_rss_bytes.is_some() || self.reset_timeout.is_some();
        !limits && !checks && self.on_line.is_none()
    }

    /// Returns true if a worker uses too much memory. Needs a system call after each call, so it asks only if there is
    /// a limit.
    fn exceeds_memory(&self, worker: &Worker) -> bool {
        let exceeds =
            |most| worker.child.child_handle().rss_bytes().is_some_and(|bytes| bytes > most);
        self.max_rss_bytes.is_some_and(exceeds)
    }
}

/// Returns an error if the worker cannot get the call.
fn check_suits(worker: &Worker, call: &QueuedCall) -> Result<(), Error> {
    if call.items.is_some() && !worker.takes_items {
        return Err(Error::new(ErrorKind::Unsupported { capability: "streams.v1" }));
    }
    worker.check_length(call.body().len())
}

/// Returns the worker that has the call, and the call's index there.
fn find(workers: &mut [Worker], id: u64) -> Option<(&mut Worker, usize)> {
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

// Messages of callers during a call: items, credit for items, and answers to questions.

impl PoolDriver {
    /// Sends the answer to a worker's question.
    fn answer(&mut self, id: u64, answer: Result<Vec<u8>, String>) {
        let Some((worker, index)) = find(&mut self.workers, id) else { return };
        let Some(active) = worker.calls.get_mut(index) else { return };
        if !std::mem::replace(&mut active.has_question, false) || active.is_cancelled {
            return;
        }
        let answer = answer.and_then(|bytes| match worker.check_length(bytes.len() as u64) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(error.to_string()),
        });
        let (kind, bytes) = match answer {
            Ok(bytes) => (kind::ANSWER, bytes),
            Err(reason) => (kind::DECLINED, reason.into_bytes()),
        };
        worker.send(kind, id, Arc::new(bytes.into()));
    }

    /// Allows a worker to send this many more items.
    fn give_credit(&mut self, id: u64, more: u32) {
        if let Some((worker, _)) = find(&mut self.workers, id) {
            worker.send_credit(id, more);
        }
    }

    /// Sends an item after the request of a call. Its sender has the credit.
    fn send_item(&mut self, id: u64, bytes: Vec<u8>) {
        let Some((worker, index)) = find(&mut self.workers, id) else { return };
        let Some(active) = worker.calls.get(index) else { return };
        if active.is_cancelled {
            return;
        }
        match worker.check_length(bytes.len() as u64) {
            Ok(()) => worker.send(kind::ITEM, id, Arc::new(bytes.into())),
            // Without that item the others mean something else.
            Err(error) => self.cancel_call(id, &mut || error.share()),
        }
    }

    /// Sends the end of the items of a call, or keeps it until the call is sent.
    fn end_items(&mut self, id: u64) {
        if let Some(call) = self.waiting.iter().find(|call| call.id == id) {
            if let Some(items) = &call.items {
                items.note_end();
            }
            return;
        }
        let Some((worker, index)) = find(&mut self.workers, id) else { return };
        let Some(active) = worker.calls.get(index) else { return };
        if let Some(items) = &active.call.items {
            // If the call was not sent, and goes to another worker, that one needs it too.
            items.note_end();
        }
        if !active.is_cancelled {
            worker.send(kind::ITEMS_END, id, Arc::default());
        }
    }
}

// The exchange of connections between the driver and the callers that borrow them.

impl PoolDriver {
    /// Takes back every connection that no caller has borrowed.
    fn take_back(&mut self) {
        let mut taken = Vec::new();
        self.mailbox.0.idle.take_back(&mut taken);
        for returned in taken {
            let _ = self.accept_returned(returned);
        }
    }

    /// Gives a returned connection to its worker. Returns the worker's index: a worker stays while its connection is
    /// borrowed.
    fn accept_returned(&mut self, returned: ReturnedConnection) -> Option<usize> {
        let at = self.workers.iter().position(|it| it.number == returned.worker)?;
        if returned.usage.has_replied {
            self.starts.note_success();
        }
        self.workers.get_mut(at)?.accept_returned(returned);
        Some(at)
    }

    /// Completes a call that its caller has started.
    fn finish(&mut self, unfinished: UnfinishedCall) {
        let UnfinishedCall { connection, call, outgoing, received } = unfinished;
        let Some(at) = self.accept_returned(connection) else { return };
        if let Some(worker) = self.workers.get_mut(at) {
            worker.adopt_call(call, outgoing);
        }
        let handled = received
            .and_then(|message| message.map_or(Ok(()), |message| self.handle_message(at, message)));
        self.fail_worker_on_error(at, handled);
    }

    /// Closes the connection of a worker after an error.
    fn fail_worker_on_error(&mut self, at: usize, handled: Result<(), Error>) {
        if let (Err(error), Some(worker)) = (handled, self.workers.get_mut(at)) {
            worker.fail(error);
        }
    }

    /// Lets callers borrow the connection of a worker, if it is idle.
    fn lend(&mut self, at: usize) {
        let nobody_waits = self.waiting.is_empty() && self.shutdown.is_none();
        let Some(worker) = self.workers.get_mut(at) else { return };
        let is_current = worker.version == self.files.version;
        if nobody_waits && self.options.allows_direct_calls() && is_current {
            worker.lend(&self.mailbox.0.idle, self.files.fresh_until());
        }
    }

    /// Prepares a worker for a wait. Returns false if there is something to do already.
    fn prepare_wait(&mut self, at: usize, may_lend: bool) -> bool {
        if may_lend {
            self.lend(at);
        }
        let calls_wait = !self.waiting.is_empty();
        let Some(worker) = self.workers.get_mut(at) else { return true };
        worker.fall_asleep() && !worker.request_back(&self.mailbox.0.idle, calls_wait)
    }
}

// The workers: their start, their retirement and replacement.

/// The shortest backoff. Without one, the thread would spend all its time on starts that fail.
const MIN_BACKOFF: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
struct StartHistory {
    /// The number of starts.
    started: u64,
    /// The number of failed starts since the last success.
    failures: u32,
    /// The error of the last failed start.
    last_error: Option<Error>,
    /// The number of workers that ended without a reply, since the last reply.
    crashes: u32,
    /// The earliest time of the next start.
    not_before: Option<Instant>,
}

impl StartHistory {
    /// Records a reply.
    fn note_success(&mut self) {
        (self.failures, self.crashes, self.last_error) = (0, 0, None);
    }
}

impl PoolDriver {
    /// Starts and retires workers.
    fn adjust_workers(&mut self, now: Instant) {
        if self.shutdown.is_some() {
            self.shut_down_workers(now);
            if self.waiting.is_empty() {
                return;
            }
            // Calls that wait are served by fresh workers, also now.
            self.retire_used_up(now);
        } else {
            self.files.check(now);
            self.retire_used_up(now);
            self.retire_idle(now);
        }
        let most = self.options.max_workers.max(1);
        loop {
            let mut alive = 0;
            let mut free = 0;
            for worker in
                self.workers.iter().filter(|it| !matches!(it.phase, WorkerPhase::Leaving(..)))
            {
                alive += 1;
                free += self.options.room_for_calls(worker, &self.files, now);
            }
            let is_wanted = alive < self.min_workers() || self.waiting.len() > free;
            let is_early = self.starts.not_before.is_some_and(|time| now < time);
            // The backoff of the next start begins when that worker has ended.
            let has_failed = self.workers.iter().any(Worker::has_failed_early);
            // Those that are leaving still have their memory and their descriptors.
            let has_room = alive < most && self.workers.len() < most.saturating_mul(2);
            if !has_room || !is_wanted || is_early || has_failed {
                return;
            }
            self.start_one(now);
        }
    }

    /// Returns the number of workers to keep.
    fn min_workers(&self) -> usize {
        if self.shutdown.is_some() { 0 } else { self.options.min_workers }
    }

    fn start_one(&mut self, now: Instant) {
        self.starts.started += 1;
        let (number, kept) = (self.starts.started, self.options.kept_output_bytes);
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
            Err(error) => self.note_failed_start(now, &error),
        }
    }

    /// Records a failed start. After several of them, the waiting calls end with its error.
    fn note_failed_start(&mut self, now: Instant, error: &Error) {
        trace::worker_not_started(error);
        self.counters.failed_starts.add_one();
        self.starts.failures += 1;
        self.back_off(now, self.starts.failures);
        self.starts.last_error = Some(error.share());
        let nobody_serves = !self.workers.iter().any(Worker::is_serving);
        if self.starts.failures >= self.options.start_attempts && nobody_serves {
            for call in self.waiting.drain(..) {
                call.end(Err(error.share()));
            }
        }
    }

    /// Returns the error of a call that timed out before a worker was free, with the reason if there is no worker.
    fn no_worker_in_time(&self) -> Error {
        let kind = ErrorKind::TimedOut { waiting_for: "a worker", peer: Peer::Nobody };
        match &self.starts.last_error {
            Some(reason) if !self.workers.iter().any(Worker::is_in_service) => {
                Error::caused(kind, reason.share())
            }
            _ => Error::new(kind),
        }
    }

    fn back_off(&mut self, now: Instant, times: u32) {
        let doubled = 1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = self.options.backoff.saturating_mul(doubled).min(self.options.max_backoff);
        self.starts.not_before = now.checked_add(pause.max(MIN_BACKOFF));
    }

    /// Retires workers that have to be replaced.
    fn retire_used_up(&mut self, now: Instant) {
        for worker in self.workers.iter_mut().filter(|it| it.is_serving()) {
            if worker.calls.is_empty() && self.options.needs_replacement(worker, &self.files, now) {
                self.counters.retired.add_one();
                worker.retire(self.options.shutdown);
            }
        }
    }

    /// Retires workers that were idle for too long.
    fn retire_idle(&mut self, now: Instant) {
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
                worker.retire(self.options.shutdown);
            }
        }
    }

    /// Retires workers without calls, and all of them once the time for calls is over.
    fn shut_down_workers(&mut self, now: Instant) {
        let Some((schedule, until)) = self.shutdown else { return };
        let is_over = until.is_some_and(|until| until <= now);
        if is_over {
            self.waiting.clear();
            self.shutdown = Some((schedule, None));
        }
        for worker in &mut self.workers {
            if is_over {
                for active in worker.calls.drain(..) {
                    active.call.end(Err(Error::new(ErrorKind::ShutDown)));
                }
            }
            if worker.calls.is_empty() && self.waiting.is_empty() {
                worker.retire(schedule);
            }
        }
    }

    /// Returns the next time after `now` at which workers have to be started or retired. (Not after the current time: a
    /// deadline that has passed since `now` would be missed, and no event would report it.)
    fn adjustment_deadline(&self, now: Instant) -> Option<Instant> {
        let in_service = self.workers.iter().filter(|it| it.is_in_service());
        // A borrowed connection may come back at any moment, unnoticed.
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
        let is_wanted = !self.waiting.is_empty() || serving < self.min_workers();
        let start = self.starts.not_before.filter(|time| is_wanted && *time > now);
        idle.into_iter().chain(old).chain(start).min()
    }
}

/// The files whose change replaces workers.
#[derive(Debug)]
struct WatchedFiles {
    paths: Vec<PathBuf>,
    stamps: Vec<Stamp>,
    /// The number of changes so far.
    version: u64,
    checked: Option<Instant>,
}

/// The length and times of a file, which distinguish it from its replacement.
type Stamp = Option<(u64, SystemTime, Option<SystemTime>)>;

/// The shortest time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl WatchedFiles {
    fn of(command: &Command, options: &PoolOptions) -> WatchedFiles {
        let mut paths = options.watched_files.clone();
        if options.replace_when_changed {
            let folders = env::var_os("PATH").unwrap_or_default();
            paths.extend(executable(command.get_program(), &folders));
        }
        let stamps = paths.iter().map(|path| stamp(path)).collect();
        WatchedFiles { paths, stamps, version: 0, checked: None }
    }

    /// Returns the time of the next check. `None`: never.
    fn fresh_until(&self) -> Option<Instant> {
        if self.paths.is_empty() {
            return None;
        }
        Some(self.checked.map_or_else(Instant::now, |checked| checked + CHECK_INTERVAL))
    }

    /// Checks the files for changes.
    fn check(&mut self, now: Instant) {
        let is_early = self.checked.is_some_and(|then| now < then + CHECK_INTERVAL);
        if self.paths.is_empty() || is_early {
            return;
        }
        self.checked = Some(now);
        let stamps: Vec<Stamp> = self.paths.iter().map(|path| stamp(path)).collect();
        // A missing file is about to be replaced.
        let has_changed = |(new, old): (&Stamp, &Stamp)| new.is_some() && new != old;
        if stamps.iter().zip(&self.stamps).any(has_changed) {
            self.stamps = stamps;
            self.version += 1;
        }
    }
}

/// Returns the file of a program, searched in these folders of `PATH`.
fn executable(program: &OsStr, folders: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    // Appended, not replaced: a dot in the name (`worker.py`) need not begin an extension.
    let mut with_suffix = program.to_owned();
    with_suffix.push(env::consts::EXE_SUFFIX);
    env::split_paths(folders)
        .flat_map(|folder| [folder.join(program), folder.join(&with_suffix)])
        .find(|file| file.is_file())
}

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    // The creation time, if the filesystem has it, tells a copy that kept the modification time.
    Some((metadata.len(), metadata.modified().ok()?, metadata.created().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_name_may_contain_a_dot() {
        let folder = env::temp_dir().join(format!("pipewright-rules-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("worker.v2{}", env::consts::EXE_SUFFIX));
        fs::write(&file, "").unwrap();
        let folders = env::join_paths([&folder]).unwrap();
        let found = |name: &str| executable(OsStr::new(name), &folders);
        let answers = [found("worker.v2"), found("worker"), found("worker.v3"), found("dir/file")];
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(answers, [Some(file), None, None, Some(PathBuf::from("dir/file"))]);
    }
}
