//! The place where the driver leaves the result of one operation for the future that waits for it.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use crate::Done;

/// The place for the result of one operation.
#[derive(Debug, Default)]
pub(super) struct Oneshot(Mutex<OneshotState>);

#[derive(Debug, Default)]
enum OneshotState {
    /// No result, and the future was not polled.
    #[default]
    Empty,
    /// No result; the task to wake.
    Polled(Waker),
    Done(Box<Done>),
    /// The future was dropped.
    Abandoned,
}

impl Oneshot {
    fn state(&self) -> MutexGuard<'_, OneshotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the result and wakes the task. Called by the driver.
    pub(super) fn complete(&self, done: Done) {
        let before = {
            let mut state = self.state();
            let next = match &*state {
                OneshotState::Abandoned => return,
                _ => OneshotState::Done(Box::new(done)),
            };
            mem::replace(&mut *state, next)
        };
        if let OneshotState::Polled(waker) = before {
            waker.wake();
        }
    }

    pub(super) fn poll(&self, context: &Context<'_>) -> Option<Box<Done>> {
        let mut state = self.state();
        match mem::take(&mut *state) {
            OneshotState::Done(done) => Some(done),
            OneshotState::Polled(waker) if waker.will_wake(context.waker()) => {
                *state = OneshotState::Polled(waker);
                None
            }
            _ => {
                *state = OneshotState::Polled(context.waker().clone());
                None
            }
        }
    }

    /// Discards the result. Returns true if there is none yet.
    pub(super) fn abandon(&self) -> bool {
        let before = mem::replace(&mut *self.state(), OneshotState::Abandoned);
        !matches!(before, OneshotState::Done(_))
    }
}
