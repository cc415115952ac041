//! What threads and tasks leave for the thread that drives an engine.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::pending::{Cell, Pending};
use crate::engine::{EngineOptions, read_cached};
use crate::{Done, Operation, OperationId};

/// Ends a wait of the engine.
type Waker = Box<dyn Fn() + Send + Sync>;

pub(super) struct Mailbox {
    letters: Mutex<Letters>,
    /// For an engine that cannot be woken: it has nothing to wait for but us.
    arrived: Condvar,
    waker: Option<Waker>,
    options: EngineOptions,
    next_id: AtomicU64,
    next_order: AtomicU64,
}

/// What has been left there.
#[derive(Debug, Default)]
pub(super) struct Letters {
    pub(super) new: VecDeque<Letter>,
    pub(super) cancelled: Vec<OperationId>,
    /// Nobody will leave anything any more.
    pub(super) closed: bool,
    /// The driver waits, and has to be woken.
    asleep: bool,
}

/// An operation, and who wants to know what becomes of it.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) id: OperationId,
    pub(super) operation: Operation,
    pub(super) cell: Arc<Cell>,
}

impl Mailbox {
    pub(super) fn new(options: EngineOptions, waker: Option<Waker>) -> Mailbox {
        Mailbox {
            letters: Mutex::default(),
            arrived: Condvar::new(),
            waker,
            options,
            next_id: AtomicU64::new(0),
            next_order: AtomicU64::new(0),
        }
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        // Nothing in here panics while it holds the lock.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an operation, unless it can be done at once.
    pub(super) fn send(self: &Arc<Mailbox>, mut operation: Operation) -> Pending {
        let id = OperationId(self.next_id.fetch_add(1, Ordering::Relaxed));
        if let Some(completion) = read_cached(&self.options, &mut operation) {
            let Operation { file, buffer, .. } = operation;
            return Pending::ready(self.with_order(Done {
                id,
                file,
                buffer,
                result: Ok(completion),
            }));
        }
        let cell = Arc::new(Cell::default());
        let pending = Pending::waiting(id, Arc::clone(&cell), Arc::clone(self));
        self.leave(|letters| letters.new.push_back(Letter { id, operation, cell }));
        pending
    }

    /// Nobody wants to know any more what becomes of an operation.
    pub(super) fn cancel(&self, id: OperationId) {
        self.leave(|letters| letters.cancelled.push(id));
    }

    pub(super) fn close(&self) {
        self.leave(|letters| letters.closed = true);
    }

    fn leave(&self, what: impl FnOnce(&mut Letters)) {
        let mut letters = self.letters();
        what(&mut letters);
        // One wake is enough for all that come before it looks.
        let was_asleep = mem::take(&mut letters.asleep);
        drop(letters);
        if was_asleep {
            match &self.waker {
                Some(wake) => wake(),
                None => self.arrived.notify_one(),
            }
        }
    }

    /// Takes everything that has been left.
    pub(super) fn take(&self) -> Letters {
        let mut letters = self.letters();
        let closed = letters.closed;
        mem::replace(&mut *letters, Letters { closed, ..Letters::default() })
    }

    /// The driver is about to wait. `false`: there is something for it.
    pub(super) fn fall_asleep(&self, is_idle: bool) -> bool {
        let mut letters = self.letters();
        let is_over = is_idle && letters.closed;
        if is_over || !letters.new.is_empty() || !letters.cancelled.is_empty() {
            return false;
        }
        letters.asleep = true;
        if self.waker.is_none() && is_idle {
            while letters.asleep {
                letters = self.arrived.wait(letters).unwrap_or_else(PoisonError::into_inner);
            }
        }
        true
    }

    /// Counts an operation that is done.
    pub(super) fn with_order(&self, mut done: Done) -> Done {
        let order = self.next_order.fetch_add(1, Ordering::Relaxed);
        if let Ok(completion) = &mut done.result {
            completion.order = order;
        }
        done
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("options", &self.options).finish_non_exhaustive()
    }
}
