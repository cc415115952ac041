//! An operation of a shared engine, as a future.

use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use pipewright_os::base::park::block_on;

use super::inbox::Inbox;
use super::oneshot::Oneshot;
use crate::{Done, OperationId};

/// A started operation: await it, or [wait](Pending::wait) for it.
///
/// # Drop
/// Cancels the operation if it has not started. A write that has started continues. The buffer and the file
/// are freed when the system has released them.
#[derive(Debug)]
#[must_use = "dropping it cancels the operation"]
pub struct Pending(State);

#[derive(Debug)]
enum State {
    Waiting { id: OperationId, oneshot: Arc<Oneshot>, inbox: Arc<Inbox> },
    Ready(Box<Done>),
    Taken,
}

impl Pending {
    pub(super) fn waiting(id: OperationId, oneshot: Arc<Oneshot>, inbox: Arc<Inbox>) -> Pending {
        Pending(State::Waiting { id, oneshot, inbox })
    }

    pub(super) fn ready(done: Done) -> Pending {
        Pending(State::Ready(Box::new(done)))
    }

    /// Blocks the calling thread until the operation is done. Needs no runtime.
    pub fn wait(self) -> Done {
        let mut this = pin!(self);
        block_on(|context| this.as_mut().poll(context))
    }
}

impl Future for Pending {
    type Output = Done;

    /// # Panics
    /// If it is polled again after it was ready, as for any future.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Done> {
        if let State::Waiting { oneshot, .. } = &self.0 {
            match oneshot.poll(context) {
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
        if let State::Waiting { id, oneshot, inbox } = &self.0 {
            if oneshot.abandon() {
                inbox.cancel(*id);
            }
        }
    }
}
