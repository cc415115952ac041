//! An operation of a shared engine that may not be done yet.

use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use pipewright_os::base::park::block_on;

use super::mailbox::Mailbox;
use crate::{Done, OperationId};

/// An operation that has been asked for: await it, or [wait](Pending::wait) for it.
///
/// # Drop
/// Cancels the operation, if it has not begun. Its buffer and its file live until the system has let go of
/// them, and are then freed; a write that has begun is done.
#[derive(Debug)]
#[must_use = "dropping it cancels the operation"]
pub struct Pending(State);

#[derive(Debug)]
enum State {
    Waiting { id: OperationId, cell: Arc<Cell>, mailbox: Arc<Mailbox> },
    Ready(Box<Done>),
    Taken,
}

impl Pending {
    pub(super) fn waiting(id: OperationId, cell: Arc<Cell>, mailbox: Arc<Mailbox>) -> Pending {
        Pending(State::Waiting { id, cell, mailbox })
    }

    pub(super) fn ready(done: Done) -> Pending {
        Pending(State::Ready(Box::new(done)))
    }

    /// Waits for it on this thread, which needs no runtime.
    pub fn wait(self) -> Done {
        let mut this = pin!(self);
        block_on(|context| this.as_mut().poll(context))
    }
}

impl Future for Pending {
    type Output = Done;

    /// # Panics
    /// When it is polled again after it was ready, as futures do.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Done> {
        if let State::Waiting { cell, .. } = &self.0 {
            match cell.look(context) {
                Some(done) => self.0 = State::Ready(done),
                None => return Poll::Pending,
            }
        }
        match mem::replace(&mut self.0, State::Taken) {
            State::Ready(done) => Poll::Ready(*done),
            State::Waiting { .. } | State::Taken => panic!("polled after it was ready"),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let State::Waiting { id, cell, mailbox } = &self.0 {
            if cell.abandon() {
                mailbox.cancel(*id);
            }
        }
    }
}

/// Where the driver leaves what has become of an operation.
#[derive(Debug, Default)]
pub(super) struct Cell(Mutex<Content>);

#[derive(Debug, Default)]
enum Content {
    /// Nothing yet, and nobody has asked.
    #[default]
    Empty,
    /// Nothing yet; who is to be woken.
    Asked(Waker),
    Done(Box<Done>),
    /// Nobody will ask.
    Abandoned,
}

impl Cell {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the driver: it is done.
    pub(super) fn complete(&self, done: Done) {
        let before = {
            let mut content = self.content();
            let next = match &*content {
                Content::Abandoned => return,
                _ => Content::Done(Box::new(done)),
            };
            mem::replace(&mut *content, next)
        };
        if let Content::Asked(waker) = before {
            waker.wake();
        }
    }

    fn look(&self, context: &Context<'_>) -> Option<Box<Done>> {
        let mut content = self.content();
        match mem::take(&mut *content) {
            Content::Done(done) => Some(done),
            Content::Asked(waker) if waker.will_wake(context.waker()) => {
                *content = Content::Asked(waker);
                None
            }
            _ => {
                *content = Content::Asked(context.waker().clone());
                None
            }
        }
    }

    /// Nobody will ask. `true`: it is not done yet.
    fn abandon(&self) -> bool {
        let before = mem::replace(&mut *self.content(), Content::Abandoned);
        !matches!(before, Content::Done(_))
    }
}
