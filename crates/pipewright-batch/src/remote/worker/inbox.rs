//! The orders that have arrived, for the thread that carries them out.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::remote::wire::Key;
use crate::remote::wire::message::WireAttempt;

/// An order.
#[derive(Debug)]
pub(super) enum Order {
    Start(Box<WireAttempt>),
    Stop(Key),
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

    /// Returns all orders that have arrived. With `waits`, there is at least one.
    pub(super) fn take(&self, waits: bool) -> VecDeque<Order> {
        let mut state = self.state();
        while waits && state.orders.is_empty() {
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut state.orders)
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
