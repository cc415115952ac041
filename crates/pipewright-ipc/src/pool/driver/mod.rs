//! The thread that drives a pool: it waits for all workers and callers at once, and handles their events.
//!
//! | file | contents |
//! |---|---|
//! | `calls.rs` | assignment, messages, cancellation and deadlines of calls |
//! | `streams.rs` | items in both directions, and questions |
//! | `workers.rs` | start, retirement and end of workers |
//! | `idle.rs` | connections that callers may borrow |

mod calls;
mod idle;
mod streams;
mod workers;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::{CancelToken, Command};
use pipewright_os::base::wait::{self, Slot};

use super::call::{self, QueuedCall};
use super::counters::Counters;
use super::mailbox::{DriverCommand, Mailbox};
use super::options::{PoolOptions, Schedule};
use super::replacement::WatchedFiles;
use super::request::Reply;
use super::worker::{ActiveCall, Worker};
use crate::connection::RawMessage;
use crate::error::{Error, ErrorKind};
use workers::StartHistory;

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
                    return self.stop();
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
                return self.stop();
            }
            // Without memory, or another resource that a wait needs, no call could get a reply.
            if let Err(error) = self.wait(has_changed, now) {
                self.end_all(&Error::cannot("wait for workers")(error));
                cannot_wait = true;
            }
        }
    }

    /// Kills all workers.
    fn stop(mut self) {
        self.stop_workers();
    }

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
            slots.extend(worker.slots());
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
            let slots = [next(), next(), next(), next(), next()];
            worker.after_wait(slots, slept, self.options.on_line.as_ref());
        }
        waited?;
        if tokens.iter().zip(woken).any(|(token, woken)| woken && call::is_cancelled(token)) {
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
