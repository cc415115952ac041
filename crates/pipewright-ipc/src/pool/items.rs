//! The items that follow a request, from the caller to the worker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use pipewright_os::base::park::block_on;

use super::mailbox::{DriverCommand, Mailbox};
use crate::error::{Error, ErrorKind};

/// The number of items that the worker of a call accepts now.
#[derive(Debug, Default)]
pub(super) struct ItemCredit(Mutex<State>);

/// The most items of a call that are on their way to a worker, whatever it accepts.
const MAX_UNSENT: u32 = 64;

#[derive(Debug, Default)]
struct State {
    credit: u32,
    /// The number of items that were taken from the caller and are not sent yet.
    unsent: u32,
    /// The caller has sent the last item.
    has_ended: bool,
    /// The call has ended.
    is_closed: bool,
    /// The sender that waits.
    waker: Option<Waker>,
}

impl ItemCredit {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts this many more items.
    pub(super) fn add(&self, more: u32) {
        self.change(|state| state.credit = state.credit.saturating_add(more));
    }

    /// Records that an item was sent.
    pub(super) fn note_sent(&self) {
        let waker = {
            let mut state = self.state();
            state.unsent = state.unsent.saturating_sub(1);
            // Half of them at a time: each wake-up costs more than an item.
            if state.unsent == MAX_UNSENT / 2 { state.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Accepts none any more: the call has ended.
    pub(super) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.state();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Records that the last item was sent.
    pub(super) fn note_end(&self) {
        self.state().has_ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// Takes the credit for one item. Returns false if the call has ended.
    fn poll_take(&self, context: &Context<'_>) -> Poll<bool> {
        let mut state = self.state();
        if state.is_closed {
            return Poll::Ready(false);
        }
        if state.credit > 0 && state.unsent < MAX_UNSENT {
            state.credit -= 1;
            state.unsent += 1;
            return Poll::Ready(true);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The sender of the items that follow a request: [`Pool::begin_with_items`](super::Pool::begin_with_items). The worker
/// gets them with [`Call::next_item`](crate::worker::Call::next_item), and decides how many may be on their way.
///
/// If the worker also sends items, receive them in another thread or task than that of the sender: otherwise both sides
/// may wait for each other.
///
/// # Drop
/// Cancels the call, unless it has ended or the sender was [finished](Self::finish): a worker never takes the beginning of
/// a request for all of it.
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct ItemSender {
    call: u64,
    credit: Arc<ItemCredit>,
    mailbox: Arc<Mailbox>,
    is_finished: bool,
}

impl ItemSender {
    pub(super) fn new(call: u64, credit: Arc<ItemCredit>, mailbox: Arc<Mailbox>) -> ItemSender {
        ItemSender { call, credit, mailbox, is_finished: false }
    }

    /// Sends an item. Waits until the worker accepts one.
    ///
    /// # Errors
    /// [`CallEnded`](ErrorKind::CallEnded): the [`PendingCall`](super::PendingCall) says why. A worker may reply before it
    /// has taken all items. An item longer than the agreed maximum ends the call with
    /// [`TooLong`](ErrorKind::TooLong).
    pub fn send(&mut self, item: impl Into<Vec<u8>>) -> Result<(), Error> {
        let item = item.into();
        self.mailbox.check_process()?;
        run_async_for_test!(self.send_async(item));
        let may_send = block_on(|context| self.credit.poll_take(context));
        self.send_if(may_send, item)
    }

    /// Like [`send`](Self::send), for a task of any runtime.
    ///
    /// # Cancellation
    /// Dropping the future sends nothing.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub async fn send_async(&mut self, item: impl Into<Vec<u8>>) -> Result<(), Error> {
        self.mailbox.check_process()?;
        let may_send = std::future::poll_fn(|context| self.credit.poll_take(context)).await;
        self.send_if(may_send, item.into())
    }

    fn send_if(&self, may_send: bool, item: Vec<u8>) -> Result<(), Error> {
        if !may_send {
            return Err(Error::new(ErrorKind::CallEnded));
        }
        self.mailbox.send(DriverCommand::Item(self.call, item));
        Ok(())
    }

    /// Ends the items. The worker then finds the end of the request.
    pub fn finish(mut self) {
        self.is_finished = true;
        self.mailbox.send(DriverCommand::EndItems(self.call));
    }
}

impl Drop for ItemSender {
    fn drop(&mut self) {
        if !self.is_finished {
            // Without effect on a call that has ended.
            self.mailbox.send(DriverCommand::Cancel(self.call));
        }
    }
}
