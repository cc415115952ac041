//! A call that may not be answered yet.

use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use pipewright_os::base::park::block_on;

use super::mailbox::{Letter, Mailbox};
use super::request::Reply;
use crate::error::{Error, ErrorKind};

/// A call that has been begun: [wait](Self::wait) for its reply, or await it; or take what happens until
/// then [one by one](Self::next).
///
/// # Drop
/// Cancels the call. A worker that does not end it soon is killed.
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct PendingCall {
    id: u64,
    cell: Arc<Cell>,
    mailbox: Arc<Mailbox>,
    /// How many pieces may be on their way.
    window: u32,
    /// How many were taken that the worker was not told of.
    taken: u32,
}

/// What happens during a call.
#[derive(Debug)]
pub enum CallEvent {
    /// A piece of the answer, where it [comes in pieces](crate::Request::in_pieces).
    Item(Vec<u8>),
    /// The worker asks something.
    Question(Question),
    /// The call is done.
    Reply(Reply),
}

/// What a worker asks of whoever has called it.
///
/// Its worker waits meanwhile. An answer for which the pool is called again needs another worker: where all of them
/// ask so, or [`max_workers`](super::PoolOptions::max_workers) is 1, nobody goes on until a call's time is over.
///
/// # Drop
/// Without an answer it is declined.
#[derive(Debug)]
pub struct Question {
    call: u64,
    bytes: Vec<u8>,
    mailbox: Arc<Mailbox>,
    answered: bool,
}

impl Question {
    /// What it asks.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Answers.
    pub fn answer(mut self, bytes: impl Into<Vec<u8>>) {
        self.tell(Ok(bytes.into()));
    }

    /// Does not answer, and says why.
    pub fn decline(mut self, why: impl Into<String>) {
        self.tell(Err(why.into()));
    }

    fn tell(&mut self, answer: Result<Vec<u8>, String>) {
        self.answered = true;
        self.mailbox.leave(Letter::Answer(self.call, answer));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if !self.answered {
            self.tell(Err("nobody answers questions in this call".to_owned()));
        }
    }
}

impl PendingCall {
    pub(super) fn new(id: u64, window: u32, cell: Arc<Cell>, mailbox: Arc<Mailbox>) -> PendingCall {
        PendingCall { id, cell, mailbox, window, taken: 0 }
    }

    /// The number of the call, which no other call of the pool has.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Waits for the reply. Questions of the worker are declined, and pieces of the answer thrown away.
    ///
    /// # Errors
    /// As [`Pool::call`](super::Pool::call).
    pub fn wait(mut self) -> Result<Reply, Error> {
        by_its_twin!(self);
        loop {
            if let CallEvent::Reply(reply) = self.next()? {
                return Ok(reply);
            }
        }
    }

    /// Waits for what happens next.
    ///
    /// # Errors
    /// As [`Pool::call`](super::Pool::call); [`Closed`](ErrorKind::Closed) after the last one.
    #[expect(
        clippy::should_implement_trait,
        reason = "it ends with a reply or an error, not with a None"
    )]
    pub fn next(&mut self) -> Result<CallEvent, Error> {
        by_its_twin!(self.next_async());
        block_on(|context| self.poll_next(context))
    }

    /// As [`next`](Self::next), for a task of whatever runtime.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn next_async(&mut self) -> Result<CallEvent, Error> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Ends the call. What happens next is [`Cancelled`](ErrorKind::Cancelled), or what had happened before.
    pub fn cancel(&self) {
        self.mailbox.leave(Letter::Cancel(self.id));
    }

    fn poll_next(&mut self, context: &Context<'_>) -> Poll<Result<CallEvent, Error>> {
        let Some(event) = self.cell.look(context) else { return Poll::Pending };
        Poll::Ready(match event {
            Told::Item(bytes) => {
                self.taken += 1;
                // Half of them at a time: each word to the driver wakes it.
                if self.taken >= self.window.div_ceil(2) {
                    self.mailbox.leave(Letter::Credit(self.id, mem::take(&mut self.taken)));
                }
                Ok(CallEvent::Item(bytes))
            }
            Told::Question(bytes) => {
                let (call, mailbox) = (self.id, Arc::clone(&self.mailbox));
                Ok(CallEvent::Question(Question { call, bytes, mailbox, answered: false }))
            }
            Told::End(result) => result.map(CallEvent::Reply),
        })
    }
}

impl Future for PendingCall {
    type Output = Result<Reply, Error>;

    /// As [`wait`](PendingCall::wait).
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
        if self.cell.abandon() {
            self.mailbox.leave(Letter::Cancel(self.id));
        }
    }
}

/// Where the driver leaves what happens during a call.
#[derive(Debug, Default)]
pub(super) struct Cell(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    told: VecDeque<Told>,
    /// Who is to be woken.
    waker: Option<Waker>,
    /// The last has been left there.
    ended: bool,
}

#[derive(Debug)]
enum Told {
    Item(Vec<u8>),
    Question(Vec<u8>),
    End(Result<Reply, Error>),
}

impl Cell {
    fn content(&self) -> MutexGuard<'_, Content> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn item(&self, bytes: Vec<u8>) {
        self.tell(Told::Item(bytes));
    }

    pub(super) fn ask(&self, bytes: Vec<u8>) {
        self.tell(Told::Question(bytes));
    }

    /// The first end counts.
    pub(super) fn end(&self, result: Result<Reply, Error>) {
        self.tell(Told::End(result));
    }

    fn tell(&self, told: Told) {
        let waker = {
            let mut content = self.content();
            if content.ended {
                return;
            }
            content.ended = matches!(told, Told::End(_));
            content.told.push_back(told);
            content.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn look(&self, context: &Context<'_>) -> Option<Told> {
        let mut content = self.content();
        if let Some(told) = content.told.pop_front() {
            return Some(told);
        }
        if content.ended {
            return Some(Told::End(Err(Error::new(ErrorKind::Closed))));
        }
        let is_same = content.waker.as_ref().is_some_and(|it| it.will_wake(context.waker()));
        if !is_same {
            content.waker = Some(context.waker().clone());
        }
        None
    }

    /// Nobody will look. `true`: it has not ended.
    fn abandon(&self) -> bool {
        !mem::replace(&mut self.content().ended, true)
    }
}
