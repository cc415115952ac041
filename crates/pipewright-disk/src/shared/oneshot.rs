//! The place where the driver leaves the result of one operation for the future that waits for it.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use crate::Done;

/// Where the driver leaves what has become of an operation.
#[derive(Debug, Default)]
pub(super) struct Oneshot(Mutex<OneshotState>);

#[derive(Debug, Default)]
enum OneshotState {
    /// Nothing yet, and nobody has asked.
    #[default]
    Empty,
    /// Nothing yet; who is to be woken.
    Polled(Waker),
    Done(Box<Done>),
    /// Nobody will ask.
    Abandoned,
}

impl Oneshot {
    fn state(&self) -> MutexGuard<'_, OneshotState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the driver: it is done.
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

    /// Nobody will ask. `true`: it is not done yet.
    pub(super) fn abandon(&self) -> bool {
        let before = mem::replace(&mut *self.state(), OneshotState::Abandoned);
        !matches!(before, OneshotState::Done(_))
    }
}
