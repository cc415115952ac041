//! The mailbox of a pool's driver: commands from callers, and the state that callers may read.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::wake::Wake;

use super::call::{QueuedCall, UnfinishedCall};
use super::counters::{Counters, WorkerSnapshot};
use super::idle_connections::{BorrowedConnection, IdleConnections, ReturnedConnection};
use super::options::Schedule;
use super::status::PoolStats;
use crate::error::{Error, ErrorKind};

/// The mailbox of a driver.
#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<State>,
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
struct State {
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

/// A command to the driver.
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
    /// Shut down, by this schedule.
    ShutDown(Schedule),
    /// End at once.
    Stop,
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

    /// Returns true if the calling thread is the driver's, which must not wait for itself: it wakes callers, and their wakers
    /// may run any code.
    pub(super) fn is_driver(&self) -> bool {
        self.driver.get() == Some(&thread::current().id())
    }

    fn state(&self) -> MutexGuard<'_, State> {
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

    fn push(&self, mut state: MutexGuard<'_, State>, command: DriverCommand) {
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
            stats.workers.extend(state.workers.iter().map(WorkerSnapshot::status));
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
