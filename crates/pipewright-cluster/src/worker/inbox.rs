//! The orders that have arrived, for the thread that carries them out.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pipewright_batch::AttemptKey;

use crate::wire::message::WireAttempt;

/// An order.
#[derive(Debug)]
pub(super) enum Order {
    Start(Box<WireAttempt>),
    Stop(AttemptKey),
    End,
}

/// Makes an executor return from its wait.
type Waker = Box<dyn Fn() + Send + Sync>;

/// The inbox of a worker.
pub(super) struct Inbox {
    state: Mutex<State>,
    arrived: Condvar,
    wake_executor: Waker,
}

#[derive(Default)]
struct State {
    orders: VecDeque<Order>,
    waits_in_executor: bool,
}

impl Inbox {
    pub(super) fn new(wake_executor: Waker) -> Inbox {
        Inbox { state: Mutex::default(), arrived: Condvar::new(), wake_executor }
    }

    pub(super) fn push(&self, order: Order) {
        let mut state = self.state();
        state.orders.push_back(order);
        let waits_in_executor = std::mem::take(&mut state.waits_in_executor);
        drop(state);
        match waits_in_executor {
            true => (self.wake_executor)(),
            false => self.arrived.notify_one(),
        }
    }

    /// Returns all orders that have arrived.
    pub(super) fn take(&self) -> VecDeque<Order> {
        std::mem::take(&mut self.state().orders)
    }

    /// Waits until an order has arrived, but no longer than `until`.
    pub(super) fn wait(&self, until: Option<Instant>) {
        let mut state = self.state();
        while state.orders.is_empty() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return,
                Some(left) => {
                    let waited = self.arrived.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Returns true if no order has arrived, so that the caller may wait in its executor, which the next order wakes. Call
    /// [`Self::leave_executor`] afterwards.
    pub(super) fn enter_executor(&self) -> bool {
        let mut state = self.state();
        state.waits_in_executor = state.orders.is_empty();
        state.waits_in_executor
    }

    pub(super) fn leave_executor(&self) {
        self.state().waits_in_executor = false;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The queue is consistent between calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
