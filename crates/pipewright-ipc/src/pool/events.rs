//! The events of one call: the driver adds them, the caller takes them.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use super::request::Reply;
use crate::error::{Error, ErrorKind};

/// The events that the caller has not taken yet.
#[derive(Debug, Default)]
pub(super) struct EventQueue(Mutex<State>);

#[derive(Debug, Default)]
struct State {
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
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push_item(&self, bytes: Vec<u8>) {
        self.push(QueuedEvent::Item(bytes));
    }

    pub(super) fn push_question(&self, bytes: Vec<u8>) {
        self.push(QueuedEvent::Question(bytes));
    }

    /// Adds the last event. Later ones are ignored.
    pub(super) fn end(&self, result: Result<Reply, Error>) {
        self.push(QueuedEvent::End(result));
    }

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
