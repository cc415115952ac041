//! A call in progress, for its caller: its events, and the items that follow its request.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pipewright_os::base::park::block_on;

use super::call::{EventQueue, ItemCredit, QueuedEvent, Reply};
use super::mailbox::{DriverCommand, Mailbox};
use crate::error::{Error, ErrorKind};

/// A call in progress. [`wait`](Self::wait) waits for its reply; so does `.await`. [`next`](Self::next) returns its
/// events one by one.
///
/// # Drop
/// Cancels the call. The pool kills a worker that does not answer a cancelled call within
/// [`cancel_grace`](super::PoolOptions::cancel_grace).
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct PendingCall {
    id: u64,
    events: Arc<EventQueue>,
    mailbox: Arc<Mailbox>,
    /// The number of items that the worker may send ahead of the caller.
    window: u32,
    /// The number of items taken since the last credit for the worker.
    taken: u32,
}

/// An event during a call.
#[derive(Debug)]
pub enum CallEvent {
    /// An item: a part of the reply, if the request [allows them](crate::Request::in_pieces).
    Item(Vec<u8>),
    /// A question that the worker [asks](crate::worker::Call::ask) during the call.
    Question(Question),
    /// The reply, which ends the call.
    Reply(Reply),
}

/// A question of a worker to its caller. The worker waits for the answer.
///
/// If the answer takes another call of the same pool, that call needs another worker. If all workers ask such
/// questions, or [`max_workers`](super::PoolOptions::max_workers) is 1, the calls deadlock until one times out.
///
/// # Drop
/// Declines the question, unless it was answered.
#[derive(Debug)]
pub struct Question {
    call: u64,
    bytes: Vec<u8>,
    mailbox: Arc<Mailbox>,
    answered: bool,
}

impl Question {
    /// Returns the question.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Answers the question.
    pub fn answer(mut self, bytes: impl Into<Vec<u8>>) {
        self.send(Ok(bytes.into()));
    }

    /// Declines the question with this reason.
    pub fn decline(mut self, reason: impl Into<String>) {
        self.send(Err(reason.into()));
    }

    fn send(&mut self, answer: Result<Vec<u8>, String>) {
        self.answered = true;
        self.mailbox.send(DriverCommand::Answer(self.call, answer));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if !self.answered {
            self.send(Err("the caller does not answer questions".to_owned()));
        }
    }
}

impl PendingCall {
    pub(super) fn new(
        id: u64,
        window: u32,
        events: Arc<EventQueue>,
        mailbox: Arc<Mailbox>,
    ) -> PendingCall {
        PendingCall { id, events, mailbox, window, taken: 0 }
    }

    /// Returns the id of the call, which is unique in the pool.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Waits for the reply. Declines questions of the worker, and discards items.
    ///
    /// # Errors
    /// Those of [`Pool::call`](super::Pool::call).
    pub fn wait(mut self) -> Result<Reply, Error> {
        run_async_for_test!(self);
        loop {
            if let CallEvent::Reply(reply) = self.next()? {
                return Ok(reply);
            }
        }
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// Those of [`Pool::call`](super::Pool::call); [`Closed`](crate::ErrorKind::Closed) after the last event.
    #[expect(
        clippy::should_implement_trait,
        reason = "it ends with a reply or an error, not with a None"
    )]
    pub fn next(&mut self) -> Result<CallEvent, Error> {
        run_async_for_test!(self.next_async());
        block_on(|context| self.poll_next(context))
    }

    /// Like [`next`](Self::next), for a task of any runtime.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub async fn next_async(&mut self) -> Result<CallEvent, Error> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Cancels the call. It ends with [`Cancelled`](crate::ErrorKind::Cancelled) after the events that have already
    /// arrived.
    pub fn cancel(&self) {
        self.mailbox.send(DriverCommand::Cancel(self.id));
    }

    fn poll_next(&mut self, context: &Context<'_>) -> Poll<Result<CallEvent, Error>> {
        self.mailbox.check_process()?;
        let Some(event) = self.events.poll(context) else { return Poll::Pending };
        Poll::Ready(match event {
            QueuedEvent::Item(bytes) => {
                self.taken += 1;
                // Half a window at a time: each command wakes the driver.
                if self.taken >= self.window.div_ceil(2) {
                    self.mailbox.send(DriverCommand::Credit(self.id, mem::take(&mut self.taken)));
                }
                Ok(CallEvent::Item(bytes))
            }
            QueuedEvent::Question(bytes) => {
                let (call, mailbox) = (self.id, Arc::clone(&self.mailbox));
                Ok(CallEvent::Question(Question { call, bytes, mailbox, answered: false }))
            }
            QueuedEvent::End(result) => result.map(CallEvent::Reply),
        })
    }
}

impl Future for PendingCall {
    type Output = Result<Reply, Error>;

    /// Like [`wait`](PendingCall::wait).
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Reply, Error>> {
        loop {
            match self.poll_next(context) {
                Poll::Ready(Ok(CallEvent::Reply(reply))) => return Poll::Ready(Ok(reply)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.mailbox.is_forked_copy() && self.events.close() {
            self.mailbox.send(DriverCommand::Cancel(self.id));
        }
    }
}

/// The sender of the items that follow a request: [`Pool::begin_with_items`](super::Pool::begin_with_items). The worker
/// gets them with [`Call::next_item`](crate::worker::Call::next_item), and decides how many may be on their way.
///
/// If the worker also sends items, receive them in another thread or task than that of the sender: otherwise both sides
/// may wait for each other.
///
/// # Drop
/// Cancels the call, unless it has ended or the sender was [finished](Self::finish): a worker never takes the beginning
/// of a request for all of it.
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
    /// [`CallEnded`](ErrorKind::CallEnded): the result of the [`PendingCall`] has the reason. A
    /// worker may reply before it has taken all items. An item longer than the agreed maximum ends the call with
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
