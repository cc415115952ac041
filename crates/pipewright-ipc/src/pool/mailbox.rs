//! The state that callers and the driver of a pool share: calls, commands, connections to workers, and counters.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};
use std::{io, mem};

use pipewright::CancelToken;
use pipewright_os::base::generation::Generation;
use pipewright_os::base::wake::Wake;
use pipewright_os::channel::handle_channel::drop_elsewhere;

use super::options::{PoolStats, Schedule, WorkerState, WorkerStatus};
use super::{Reply, Request};
use crate::connection::{
    Body, Connection, Payload, RawMessage, Reassembly, Sending, Spin, StepResult,
};
use crate::error::{Error, ErrorKind};
use crate::wire;

/// The mailbox of a driver.
#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<MailboxState>,
    wake: Wake,
    next_id: AtomicU64,
    /// The connections that callers may borrow.
    pub(super) idle: IdleConnections,
    pub(super) counters: Arc<Counters>,
    /// The process that has the driver. A fork of it has none, and locks that nobody may ever release.
    created_in: Generation,
    /// The driver's thread.
    driver: OnceLock<ThreadId>,
}

#[derive(Debug, Default)]
struct MailboxState {
    commands: Vec<DriverCommand>,
    /// The number of calls that wait for a worker, here and with the driver.
    waiting: usize,
    /// No more calls are accepted.
    closed: bool,
    /// The driver waits, and has to be woken.
    asleep: bool,
    /// The driver has ended.
    ended: bool,
    /// The tasks that wait for the end of the driver.
    wakers: Vec<Waker>,
    /// The workers as of the driver's last wait.
    workers: Vec<WorkerSnapshot>,
}

#[derive(Debug)]
pub(super) enum DriverCommand {
    /// Give the call to a worker.
    Call(QueuedCall),
    /// Cancel the call.
    Cancel(u64),
    /// Send the answer to a question of the call's worker, or the reason why there is none.
    Answer(u64, Result<Vec<u8>, String>),
    /// Allow the call's worker to send this many more items.
    Credit(u64, u32),
    /// Send an item after the request.
    Item(u64, Vec<u8>),
    /// Send the end of the items.
    EndItems(u64),
    /// Take back a connection.
    Return(ReturnedConnection),
    /// Take back a connection, and complete the call on it.
    Finish(Box<UnfinishedCall>),
    ShutDown(Schedule),
    /// End at once.
    Stop,
}

/// A call that its caller started on a borrowed connection, and that the driver has to complete.
#[derive(Debug)]
pub(super) struct UnfinishedCall {
    pub(super) connection: ReturnedConnection,
    pub(super) call: QueuedCall,
    /// The call itself, if it is not sent completely.
    pub(super) outgoing: VecDeque<OutgoingMessage>,
    /// A message that is not the reply, or the error of the connection.
    pub(super) received: Result<Option<RawMessage>, Error>,
}

impl Mailbox {
    pub(super) fn new() -> Result<Mailbox, Error> {
        Ok(Mailbox {
            state: Mutex::default(),
            wake: Wake::new().map_err(Error::cannot("create the wake-up handle of a pool"))?,
            next_id: AtomicU64::new(1),
            idle: IdleConnections::default(),
            counters: Arc::default(),
            created_in: Generation::current(),
            driver: OnceLock::new(),
        })
    }

    /// Returns an error in a fork of the process that has the pool.
    pub(super) fn check_process(&self) -> Result<(), Error> {
        if self.created_in.is_current() {
            return Ok(());
        }
        let words = "the pool stays with the process that created it, and this is a fork of that";
        Err(io::Error::new(io::ErrorKind::Unsupported, words).into())
    }

    /// Returns true in a fork of the process that has the pool.
    pub(super) fn is_forked_copy(&self) -> bool {
        !self.created_in.is_current()
    }

    /// Records that the calling thread is the driver's.
    pub(super) fn note_driver(&self) {
        let _ = self.driver.set(thread::current().id());
    }

    /// Returns true if the calling thread is the driver's, which must not wait for itself: it wakes callers, and their
    /// wakers may run any code.
    pub(super) fn is_driver(&self) -> bool {
        self.driver.get() == Some(&thread::current().id())
    }

    fn state(&self) -> MutexGuard<'_, MailboxState> {
        // Nothing in here panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the id of the next call.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Queues a call, unless this many or more are waiting.
    pub(super) fn call(&self, call: QueuedCall, most: usize) -> Result<(), Error> {
        self.check_process()?;
        let mut state = self.state();
        if state.closed {
            return Err(Error::new(ErrorKind::ShutDown));
        }
        if state.waiting >= most {
            return Err(Error::new(ErrorKind::Full { most }));
        }
        state.waiting += 1;
        self.push(state, DriverCommand::Call(call));
        Ok(())
    }

    /// Gives a connection back to the idle ones, or to the driver if it requested that. `has_failed`: true if the
    /// reply is an error. `None`: there was no call.
    pub(super) fn give_back(&self, borrowed: BorrowedConnection, has_failed: Option<bool>) {
        match has_failed {
            Some(true) => self.counters.failures.add_one(),
            Some(false) => self.counters.replies.add_one(),
            None => {}
        }
        if let Some(returned) = self.idle.give_back(borrowed, has_failed.is_some()) {
            self.send(DriverCommand::Return(returned));
        }
    }

    /// Queues any other command. One that comes too late has no effect, and so has one in a fork.
    pub(super) fn send(&self, command: DriverCommand) {
        if self.is_forked_copy() {
            return;
        }
        self.push(self.state(), command);
    }

    fn push(&self, mut state: MutexGuard<'_, MailboxState>, command: DriverCommand) {
        if matches!(command, DriverCommand::ShutDown(_) | DriverCommand::Stop) {
            state.closed = true;
        }
        if state.ended {
            let error = Error::new(ErrorKind::ShutDown);
            // Ending the call in it may run any code of the caller: not under the lock.
            drop(state);
            return command.end(&error);
        }
        state.commands.push(command);
        // One wake-up covers all commands that come before the driver takes them.
        let was_asleep = mem::take(&mut state.asleep);
        drop(state);
        if was_asleep {
            self.wake.raise();
        }
    }

    /// Returns the handle that the driver waits for.
    pub(super) fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Moves all commands to the driver.
    pub(super) fn take(&self, taken: &mut Vec<DriverCommand>) {
        self.wake.lower();
        let mut state = self.state();
        state.asleep = false;
        taken.append(&mut state.commands);
    }

    /// Publishes the driver's state before it waits. Returns false if there are commands.
    pub(super) fn fall_asleep(
        &self,
        waiting: usize,
        workers: impl Iterator<Item = WorkerSnapshot>,
    ) -> bool {
        let mut state = self.state();
        state.workers.clear();
        state.workers.extend(workers);
        state.waiting = waiting + state.commands.iter().filter(|it| it.is_call()).count();
        state.asleep = state.commands.is_empty();
        state.asleep
    }

    /// Returns the workers as of the driver's last wait, and the current counters.
    pub(super) fn stats(&self) -> PoolStats {
        let mut stats = self.counters.stats();
        if self.is_forked_copy() {
            return stats;
        }
        {
            let state = self.state();
            stats.workers.extend(state.workers.iter().map(WorkerSnapshot::current));
            stats.waiting = state.waiting;
        }
        self.idle.update_states(&mut stats.workers);
        stats
    }

    /// Ends the remaining calls, and wakes all tasks that wait for the end of the driver.
    pub(super) fn end(&self) {
        let mut state = self.state();
        (state.closed, state.ended) = (true, true);
        let (left, wakers) = (mem::take(&mut state.commands), mem::take(&mut state.wakers));
        let error = Error::new(ErrorKind::ShutDown);
        // Ending a call may run any code of the caller: not under the lock.
        drop(state);
        for command in left {
            command.end(&error);
        }
        self.idle.close();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Waits for the end of the driver.
    pub(super) fn poll_ended(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.ended {
            return Poll::Ready(());
        }
        state.wakers.push(context.waker().clone());
        Poll::Pending
    }
}

impl DriverCommand {
    /// Ends the call in the command with this error.
    fn end(self, error: &Error) {
        match self {
            DriverCommand::Call(call) => call.end(Err(error.share())),
            DriverCommand::Finish(unfinished) => unfinished.call.end(Err(error.share())),
            _ => {}
        }
    }

    fn is_call(&self) -> bool {
        matches!(self, DriverCommand::Call(_))
    }
}

// The connections of idle workers: a caller that borrows one talks to the worker itself. A call through the pool's
// thread costs two more wake-ups: of that thread, and then of the caller. During a direct call the thread still watches
// the worker's output and exit. It takes the connection back whenever it runs, unless a caller has it: then it requests
// it.

/// The connections of idle workers, and of those whose connection a caller has borrowed.
#[derive(Debug, Default)]
pub(super) struct IdleConnections(Mutex<IdleState>);

#[derive(Debug, Default)]
struct IdleState {
    entries: Vec<WorkerEntry>,
    /// No more connections are accepted.
    closed: bool,
}

/// A worker whose connection the driver does not have.
#[derive(Debug)]
struct WorkerEntry {
    worker: u64,
    /// `None`: a caller has borrowed it.
    connection: Option<Box<WorkerConnection>>,
    /// The time from which it may not be borrowed.
    until: Option<Instant>,
    usage: ConnectionUse,
    /// The borrower gives the connection to the driver after its call.
    is_requested: bool,
    /// Raised: the borrower gives it to the driver at once.
    wake: Arc<Wake>,
    jobs: Arc<Counter>,
}

/// The use of a connection outside of the driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionUse {
    /// The worker has replied to a call.
    pub(super) has_replied: bool,
    pub(super) last: Instant,
}

/// A connection that a caller has borrowed.
#[derive(Debug)]
pub(super) struct BorrowedConnection {
    pub(super) worker: u64,
    pub(super) connection: Box<WorkerConnection>,
    /// Raised: the driver needs the connection.
    pub(super) wake: Arc<Wake>,
    /// The calls that the worker has answered.
    pub(super) jobs: Arc<Counter>,
}

/// A connection that returns to the driver.
#[derive(Debug)]
pub(super) struct ReturnedConnection {
    pub(super) worker: u64,
    pub(super) connection: Box<WorkerConnection>,
    pub(super) usage: ConnectionUse,
}

impl IdleConnections {
    fn state(&self) -> MutexGuard<'_, IdleState> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Borrows the connection that was used last, so that the pool can retire the other workers.
    pub(super) fn borrow(&self) -> Option<BorrowedConnection> {
        let mut state = self.state();
        let is_available = |entry: &&mut WorkerEntry| {
            entry.connection.is_some() && entry.until.is_none_or(|until| Instant::now() < until)
        };
        let available = state.entries.iter_mut().filter(is_available);
        let entry = available.max_by_key(|entry| entry.usage.last)?;
        let connection = entry.connection.take()?;
        let (wake, jobs) = (Arc::clone(&entry.wake), Arc::clone(&entry.jobs));
        Some(BorrowedConnection { worker: entry.worker, connection, wake, jobs })
    }

    /// Gives a borrowed connection back. Returns it if it has to go to the driver.
    pub(super) fn give_back(
        &self,
        borrowed: BorrowedConnection,
        has_replied: bool,
    ) -> Option<ReturnedConnection> {
        if has_replied {
            borrowed.jobs.add_one();
        }
        let mut state = self.state();
        let at = state.entries.iter().position(|entry| entry.worker == borrowed.worker)?;
        let entry = state.entries.get_mut(at)?;
        let has_replied = entry.usage.has_replied || has_replied;
        entry.usage = ConnectionUse { has_replied, last: Instant::now() };
        if !entry.is_requested {
            entry.connection = Some(borrowed.connection);
            return None;
        }
        let usage = state.entries.swap_remove(at).usage;
        let BorrowedConnection { worker, connection, .. } = borrowed;
        Some(ReturnedConnection { worker, connection, usage })
    }

    /// Removes a borrowed connection, for the driver to complete the call on it.
    pub(super) fn remove(&self, borrowed: BorrowedConnection) -> ReturnedConnection {
        let mut state = self.state();
        let mut usage = ConnectionUse { has_replied: false, last: Instant::now() };
        if let Some(at) = state.entries.iter().position(|entry| entry.worker == borrowed.worker) {
            usage.has_replied = state.entries.swap_remove(at).usage.has_replied;
        }
        let BorrowedConnection { worker, connection, .. } = borrowed;
        ReturnedConnection { worker, connection, usage }
    }

    /// Adds a connection that the driver does not need. Callers may borrow it until that time.
    pub(super) fn add(&self, idle: BorrowedConnection, until: Option<Instant>, last: Instant) {
        let BorrowedConnection { worker, connection, wake, jobs } = idle;
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.entries.push(WorkerEntry {
            worker,
            connection: Some(connection),
            until,
            usage: ConnectionUse { has_replied: false, last },
            is_requested: false,
            wake,
            jobs,
        });
    }

    /// Takes all connections back that no caller has borrowed.
    pub(super) fn take_back(&self, taken: &mut Vec<ReturnedConnection>) {
        self.state().entries.retain_mut(|entry| {
            let (worker, usage) = (entry.worker, entry.usage);
            let connection = entry.connection.take();
            let is_borrowed = connection.is_none();
            taken.extend(connection.map(|connection| ReturnedConnection {
                worker,
                connection,
                usage,
            }));
            is_borrowed
        });
    }

    /// Requests a borrowed connection for the driver, after the call or at once. Returns true if it is here already.
    pub(super) fn request(&self, worker: u64, at_once: bool) -> bool {
        let mut state = self.state();
        let entry = state.entries.iter_mut().find(|entry| entry.worker == worker);
        let Some(entry) = entry else { return false };
        entry.is_requested = true;
        if at_once {
            entry.wake.raise();
        }
        entry.connection.is_some()
    }

    /// Drops all connections: the driver has ended.
    pub(super) fn close(&self) {
        let entries = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.entries)
        };
        for mut entry in entries {
            entry.wake.raise();
            if let Some(connection) = entry.connection.take() {
                connection.discard();
            }
        }
    }

    /// Updates the states of workers whose connection the driver does not have.
    fn update_states(&self, workers: &mut [WorkerStatus]) {
        let state = self.state();
        for worker in workers {
            let entry = state.entries.iter().find(|entry| entry.worker == worker.number);
            let Some(entry) = entry else { continue };
            let is_idle = entry.connection.is_some();
            worker.state = if is_idle { WorkerState::Idle } else { WorkerState::Busy };
        }
    }
}

// A call, as its caller and the driver share it.

/// A call without a reply.
#[derive(Debug)]
pub(super) struct QueuedCall {
    pub(super) id: u64,
    body: Arc<Contents>,
    pub(super) idempotent: bool,
    pub(super) until: Option<Instant>,
    pub(super) token: Option<CancelToken>,
    /// The number of items that the worker may send ahead of the caller. 0: the reply comes as a whole.
    pub(super) window: u32,
    /// The number of workers that had the call.
    pub(super) attempts: u32,
    /// The number of workers that ended before the call was sent to them.
    pub(super) returns: u32,
    /// The caller has seen an item or a question, so the call cannot start again.
    pub(super) has_reported: bool,
    events: Arc<EventQueue>,
    /// The items that follow the request. `None`: the request comes as a whole.
    pub(super) items: Option<Arc<ItemCredit>>,
}

impl QueuedCall {
    pub(super) fn new(
        id: u64,
        request: Request,
        events: Arc<EventQueue>,
        items: Option<Arc<ItemCredit>>,
    ) -> QueuedCall {
        let Request { body, tail, idempotent, timeout, cancel, window } = request;
        QueuedCall {
            id,
            body: Arc::new(Contents { bytes: body, tail }),
            // Nothing keeps the items that a worker has received.
            idempotent: idempotent && items.is_none(),
            until: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            token: cancel,
            window,
            attempts: 0,
            returns: 0,
            has_reported: false,
            events,
            items,
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.token.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// Returns the request, for one more worker.
    pub(super) fn body(&self) -> Arc<Contents> {
        Arc::clone(&self.body)
    }

    /// Reports an item of the reply or a question of the worker to the caller.
    pub(super) fn report(&mut self, event: QueuedEvent) {
        self.has_reported = true;
        self.events.push(event);
    }

    /// Ends the call with this result.
    pub(super) fn end(&self, result: Result<Reply, Error>) {
        if let Some(items) = &self.items {
            items.close();
        }
        self.events.push(QueuedEvent::End(result));
    }
}

impl Drop for QueuedCall {
    /// Ends the call: a caller must not wait forever, even if the driver panics.
    fn drop(&mut self) {
        self.end(Err(Error::new(ErrorKind::ShutDown)));
    }
}

/// Returns true if the token is cancelled. Clears its wake-up if that was for a signal to another child.
pub(super) fn is_cancelled(token: &CancelToken) -> bool {
    let is_cancelled = token.is_cancelled();
    if !is_cancelled {
        token.take_signals();
    }
    is_cancelled
}

// The events of one call: the driver adds them, the caller takes them.

/// The events that the caller has not taken yet.
#[derive(Debug, Default)]
pub(super) struct EventQueue(Mutex<EventState>);

#[derive(Debug, Default)]
struct EventState {
    events: VecDeque<QueuedEvent>,
    /// The caller that waits.
    waker: Option<Waker>,
    /// The last event was added.
    ended: bool,
}

/// An event of a call.
#[derive(Debug)]
pub(super) enum QueuedEvent {
    Item(Vec<u8>),
    Question(Vec<u8>),
    End(Result<Reply, Error>),
}

impl EventQueue {
    fn state(&self) -> MutexGuard<'_, EventState> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. The last one is the end: later ones are ignored.
    fn push(&self, event: QueuedEvent) {
        let waker = {
            let mut state = self.state();
            if state.ended {
                return;
            }
            state.ended = matches!(event, QueuedEvent::End(_));
            state.events.push_back(event);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the next event, or registers the task to be woken for it.
    pub(super) fn poll(&self, context: &Context<'_>) -> Option<QueuedEvent> {
        let mut state = self.state();
        if let Some(event) = state.events.pop_front() {
            return Some(event);
        }
        if state.ended {
            return Some(QueuedEvent::End(Err(Error::new(ErrorKind::Closed))));
        }
        let is_same = state.waker.as_ref().is_some_and(|it| it.will_wake(context.waker()));
        if !is_same {
            state.waker = Some(context.waker().clone());
        }
        None
    }

    /// Ends the queue without an event: the caller is gone. Returns true if it had not ended.
    pub(super) fn close(&self) -> bool {
        !mem::replace(&mut self.state().ended, true)
    }
}

// The items that follow a request, from the caller to the worker.

/// The number of items that the worker of a call accepts now.
#[derive(Debug, Default)]
pub(super) struct ItemCredit(Mutex<CreditState>);

/// The most items of a call that are on their way to a worker, even if it accepts more.
const MAX_UNSENT: u32 = 64;

#[derive(Debug, Default)]
struct CreditState {
    credit: u32,
    /// The number of items that were taken from the caller and are not sent yet.
    unsent: u32,
    /// The caller has sent the last item.
    has_ended: bool,
    /// The call has ended.
    is_closed: bool,
    /// The sender that waits.
    waker: Option<Waker>,
}

impl ItemCredit {
    fn state(&self) -> MutexGuard<'_, CreditState> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts this many more items.
    pub(super) fn add(&self, more: u32) {
        self.change(|state| state.credit = state.credit.saturating_add(more));
    }

    /// Records that an item was sent.
    pub(super) fn note_sent(&self) {
        let waker = {
            let mut state = self.state();
            state.unsent = state.unsent.saturating_sub(1);
            // Half of them at a time: each wake-up costs more than an item.
            if state.unsent == MAX_UNSENT / 2 { state.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Accepts none any more: the call has ended.
    pub(super) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut CreditState)) {
        let waker = {
            let mut state = self.state();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Records that the last item was sent.
    pub(super) fn note_end(&self) {
        self.state().has_ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// Takes the credit for one item. Returns false if the call has ended.
    pub(super) fn poll_take(&self, context: &Context<'_>) -> Poll<bool> {
        let mut state = self.state();
        if state.is_closed {
            return Poll::Ready(false);
        }
        if state.credit > 0 && state.unsent < MAX_UNSENT {
            state.credit -= 1;
            state.unsent += 1;
            return Poll::Ready(true);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

// The connection to a worker, which carries calls. The driver or a caller waits for the replies.

/// A connection, with the message that is arriving and the spin before a wait.
#[derive(Debug)]
pub(super) struct WorkerConnection {
    pub(super) inner: Connection,
    incoming: Reassembly,
    spin: Spin,
}

/// The bytes of a message to a worker.
#[derive(Debug, Default)]
pub(super) struct Contents {
    bytes: Vec<u8>,
    /// More bytes, which follow those.
    tail: Vec<u8>,
}

impl From<Vec<u8>> for Contents {
    fn from(bytes: Vec<u8>) -> Contents {
        Contents { bytes, tail: Vec::new() }
    }
}

impl Contents {
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64 + self.tail.len() as u64
    }

    fn as_payload(&self) -> Payload<'_> {
        Payload { bytes: &self.bytes, tail: &self.tail, handles: None }
    }
}

/// A message to a worker, with its state.
#[derive(Debug)]
pub(super) struct OutgoingMessage {
    pub(super) sending: Sending,
    body: Arc<Contents>,
}

impl OutgoingMessage {
    pub(super) fn new(kind: u8, id: u64, body: Arc<Contents>) -> OutgoingMessage {
        OutgoingMessage { sending: Sending::new(kind, id), body }
    }

    /// Returns the number that the message contains.
    pub(super) fn number(&self) -> u32 {
        wire::credit(&self.body.bytes)
    }

    /// Adds to the number that the message contains.
    pub(super) fn add(&mut self, more: u32) {
        let number = self.number().saturating_add(more).to_le_bytes();
        self.body = Arc::new(number.to_vec().into());
    }
}

impl WorkerConnection {
    pub(super) fn new(mut inner: Connection, max_spin: Duration) -> WorkerConnection {
        // Calls carry none, and closing what a worker sends may block.
        inner.end.refuse_handles();
        WorkerConnection { inner, incoming: Reassembly::default(), spin: Spin::new(max_spin) }
    }

    /// Sends as many of the messages as there is room for, in order, and reports those that are sent completely.
    /// Returns true if all are sent and flushed.
    pub(super) fn send(
        &mut self,
        outgoing: &mut VecDeque<OutgoingMessage>,
        mut report: impl FnMut(&OutgoingMessage),
    ) -> Result<bool, Error> {
        while self.inner.flush_and_settle()? == StepResult::Done {
            let Some(first) = outgoing.front_mut() else { return Ok(true) };
            if first.sending.step(&mut self.inner, first.body.as_payload())? != StepResult::Done {
                return Ok(false);
            }
            if let Some(sent) = outgoing.pop_front() {
                report(&sent);
            }
        }
        Ok(false)
    }

    /// Returns the next message, if all of it has arrived in this turn. The check decides by its header if it is one
    /// that the worker may send now.
    pub(super) fn next(
        &mut self,
        check: impl Fn(&Body) -> Result<(), Error>,
    ) -> Result<Option<RawMessage>, Error> {
        loop {
            let message = self.incoming.next(&mut self.inner, &check)?;
            // The rest of a partial message is most likely being written. A sleep for each part would take longer than
            // the part.
            if message.is_some()
                || !self.incoming.is_partial()
                || !self.inner.may_spin()
                || !self.spin()
            {
                return Ok(message);
            }
        }
    }

    /// Spins for a while. Returns true if the ring has the next frame.
    pub(super) fn spin(&mut self) -> bool {
        self.spin.until(|| self.inner.has_records());
        // A record may come after a frame that only a wait brings.
        self.inner.next_is_in_ring()
    }

    /// Drops the connection: on another thread if that may block.
    pub(super) fn discard(mut self: Box<Self>) {
        if self.inner.end.end_both() {
            drop_elsewhere(self);
        }
    }

    /// Returns true if nothing is known to be on its way in either direction.
    pub(super) fn is_quiet(&self) -> bool {
        self.inner.unsent() == 0 && !self.incoming.is_partial()
    }

    /// Ends a wait: `arrived` if something arrived, after a sleep of that length. `has_spun` if there was a spin before
    /// it.
    pub(super) fn wake_up(&mut self, arrived: bool, slept: Duration, has_spun: bool) {
        self.inner.wake_up(if arrived { slept } else { Duration::ZERO });
        if arrived && (has_spun || self.incoming.is_partial()) {
            self.spin.note_sleep(slept);
        }
    }
}

// The counters of a pool. Each event is counted before its waiter wakes up, so that a caller who has a reply finds it
// in the statistics.

/// A counter that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add_one(&self) {
        // Relaxed: the lock through which a caller gets its result orders this before the caller's read.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a pool, as in [`PoolStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) replies: Counter,
    pub(super) failures: Counter,
    pub(super) retries: Counter,
    pub(super) lost: Counter,
    pub(super) cancelled: Counter,
    pub(super) started: Counter,
    pub(super) failed_starts: Counter,
    pub(super) died: Counter,
    pub(super) retired: Counter,
}

impl Counters {
    /// Returns the counters, without the workers.
    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            workers: Vec::new(),
            waiting: 0,
            replies: self.replies.get(),
            failures: self.failures.get(),
            retries: self.retries.get(),
            lost: self.lost.get(),
            cancelled: self.cancelled.get(),
            started: self.started.get(),
            failed_starts: self.failed_starts.get(),
            died: self.died.get(),
            retired: self.retired.get(),
        }
    }
}

/// The state of a worker as of the driver's last wait, and its live counter.
#[derive(Debug)]
pub(super) struct WorkerSnapshot {
    pub(super) status: WorkerStatus,
    pub(super) jobs: Arc<Counter>,
}

impl WorkerSnapshot {
    fn current(&self) -> WorkerStatus {
        WorkerStatus { jobs: self.jobs.get(), ..self.status.clone() }
    }
}
