//! The connections of idle workers: a caller that borrows one talks to the worker itself.
//!
//! A call through the pool's thread costs two more wake-ups: of that thread, and then of the caller. During a direct
//! call the thread still watches the worker's output and exit. It takes the connection back whenever it runs, unless a
//! caller has it: then it [requests](IdleConnections::request) it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pipewright_os::base::wake::Wake;

use super::connection::WorkerConnection;
use super::counters::Counter;
use super::status::{WorkerState, WorkerStatus};

/// The connections of idle workers, and of those whose connection a caller has borrowed.
#[derive(Debug, Default)]
pub(super) struct IdleConnections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: Vec<WorkerEntry>,
    /// No more connections are accepted.
    closed: bool,
}

/// One worker.
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
    fn state(&self) -> MutexGuard<'_, State> {
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
    pub(super) fn update_states(&self, workers: &mut [WorkerStatus]) {
        let state = self.state();
        for worker in workers {
            let entry = state.entries.iter().find(|entry| entry.worker == worker.number);
            let Some(entry) = entry else { continue };
            let is_idle = entry.connection.is_some();
            worker.state = if is_idle { WorkerState::Idle } else { WorkerState::Busy };
        }
    }
}
