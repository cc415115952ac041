//! The operations and cancellations that threads and tasks leave for the driver of an engine.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pipewright_os::base::generation::Generation;

use super::oneshot::Oneshot;
use crate::engine::EngineOptions;
use crate::{Done, Operation, OperationId};

/// A function that interrupts the engine's wait.
type Waker = Box<dyn Fn() + Send + Sync>;

pub(super) struct Inbox {
    contents: Mutex<Contents>,
    /// Wakes the driver of an engine that cannot be interrupted. Such an engine waits only here.
    arrived: Condvar,
    waker: Option<Waker>,
    options: EngineOptions,
    next_id: AtomicU64,
    next_order: AtomicU64,
    made_in: Generation,
}

/// The contents of the inbox.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) new: VecDeque<QueuedOperation>,
    pub(super) cancelled: Vec<OperationId>,
    /// True if nothing will be added any more.
    pub(super) closed: bool,
    /// True if the driver waits and has to be woken.
    asleep: bool,
}

/// An operation, and the place for its result.
#[derive(Debug)]
pub(super) struct QueuedOperation {
    pub(super) id: OperationId,
    pub(super) operation: Operation,
    pub(super) oneshot: Arc<Oneshot>,
}

impl Inbox {
    pub(super) fn new(options: EngineOptions, waker: Option<Waker>) -> Inbox {
        Inbox {
            contents: Mutex::default(),
            arrived: Condvar::new(),
            waker,
            options,
            next_id: AtomicU64::new(0),
            next_order: AtomicU64::new(0),
            made_in: Generation::current(),
        }
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        // No code panics while it holds this lock.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the next operation.
    pub(super) fn next_id(&self) -> OperationId {
        OperationId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the options that the caller asked for.
    pub(super) fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Adds an operation.
    pub(super) fn push(&self, operation: QueuedOperation) {
        self.leave(|contents| contents.new.push_back(operation));
    }

    /// Adds a cancellation.
    pub(super) fn cancel(&self, id: OperationId) {
        self.leave(|contents| contents.cancelled.push(id));
    }

    pub(super) fn close(&self) {
        self.leave(|contents| contents.closed = true);
    }

    /// Returns true in the process that has the driver: not in a fork of it.
    pub(super) fn is_at_home(&self) -> bool {
        self.made_in.is_current()
    }

    fn leave(&self, what: impl FnOnce(&mut Contents)) {
        if !self.is_at_home() {
            return;
        }
        let mut contents = self.contents();
        what(&mut contents);
        // One wake-up is enough for everything that is added before the driver takes it.
        let was_asleep = mem::take(&mut contents.asleep);
        drop(contents);
        if was_asleep {
            match &self.waker {
                Some(wake) => wake(),
                None => self.arrived.notify_one(),
            }
        }
    }

    /// Takes the contents.
    pub(super) fn take(&self) -> Contents {
        let mut contents = self.contents();
        let closed = contents.closed;
        mem::replace(&mut *contents, Contents { closed, ..Contents::default() })
    }

    /// Prepares the driver's wait. Returns false if there is something to do.
    pub(super) fn fall_asleep(&self, is_idle: bool) -> bool {
        let mut contents = self.contents();
        let is_over = is_idle && contents.closed;
        if is_over || !contents.new.is_empty() || !contents.cancelled.is_empty() {
            return false;
        }
        contents.asleep = true;
        if self.waker.is_none() && is_idle {
            while contents.asleep {
                contents = self.arrived.wait(contents).unwrap_or_else(PoisonError::into_inner);
            }
        }
        true
    }

    /// Numbers a finished operation in the order of completion.
    pub(super) fn with_order(&self, mut done: Done) -> Done {
        let order = self.next_order.fetch_add(1, Ordering::Relaxed);
        if let Ok(completion) = &mut done.result {
            completion.order = order;
        }
        done
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("options", &self.options).finish_non_exhaustive()
    }
}
