//! The calls of a channel for tasks of a tokio runtime: feature `tokio`.
//!
//! Each runs the same operation as its blocking counterpart. Only the wait differs.

use std::future::poll_fn;
use std::mem;
use std::task::Poll;
use std::time::{Duration, Instant};

use pipewright::{Command, ExitStatus, Handle};
use pipewright_os::base::wait::Slot;
use pipewright_os::channel::handle_channel::ChannelEnd;

use super::core::{Closing, Core};
use super::{Channel, Message, check_handles, rejection_deadline};
use crate::connection::{Connection, Filling, Payload, Sending, StepResult, Want};
use crate::error::{Error, WAIT};
use crate::handshake;
use crate::options::Options;
use crate::process;
use crate::wire::kind;

/// For tasks of a tokio runtime, which needs `enable_io` and `enable_time`: feature `tokio`.
impl<S, R> Channel<S, R> {
    /// Like [`start`](Self::start), without blocking a thread. Only the start of the process itself is synchronous.
    ///
    /// # Cancellation
    /// Dropping the future kills the worker.
    ///
    /// # Errors
    /// Those of [`start`](Self::start); `Unsupported` outside of a tokio runtime.
    pub async fn start_async(
        command: &mut Command,
        options: &Options,
    ) -> Result<Channel<S, R>, Error> {
        let (end, mut child) = process::start(command)?;
        match handshake::host_async(end, &child, options).await {
            Ok(connection) => Ok(Channel::of(connection, Some(child), options)),
            Err(error) => {
                if let Some(until) = rejection_deadline(&error) {
                    let _ = process::wait_for_exit_async(&child, until).await;
                }
                Err(process::without_handshake(error, &mut child))
            }
        }
    }

    pub(crate) async fn connected_async(
        end: ChannelEnd,
        options: &Options,
    ) -> Result<Channel<S, R>, Error> {
        let connection = handshake::worker_async(end, options).await?;
        Ok(Channel::of(connection, None, options))
    }

    /// Like [`send_bytes`](Self::send_bytes), without blocking a thread.
    ///
    /// # Cancellation
    /// The first poll sends a message of at most 64 KiB, even if the future is then dropped. A longer one is cut off when
    /// the future is dropped, and nothing more can be sent: [`CutOff`](crate::ErrorKind::CutOff).
    ///
    /// # Errors
    /// Those of [`send_bytes`](Self::send_bytes); `Unsupported` outside of a tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(channel: &mut pipewright_ipc::Channel) -> Result<(), pipewright_ipc::Error> {
    /// channel.send_bytes_async(b"a question").await?;
    /// let answer = channel.recv_async().await?.bytes_async().await?;
    /// # Ok(()) }
    /// ```
    pub async fn send_bytes_async(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let until = self.core.until();
        self.core.send_async(bytes.into(), until).await
    }

    /// Like [`send_with_handles`](Self::send_with_handles), without blocking a thread.
    ///
    /// # Cancellation
    /// As for [`send_bytes_async`](Self::send_bytes_async). A future that was dropped while it waited for room to start
    /// has sent nothing, and the channel is unchanged.
    ///
    /// # Errors
    /// Those of [`send_with_handles`](Self::send_with_handles); `Unsupported` outside of a tokio runtime.
    pub async fn send_with_handles_async(
        &mut self,
        bytes: &[u8],
        handles: &[Handle],
    ) -> Result<(), Error> {
        check_handles(handles)?;
        let until = self.core.until();
        self.core.send_async(Payload { bytes, handles: Some(handles) }, until).await
    }

    /// Like [`send_filled`](Self::send_filled), without blocking a thread.
    ///
    /// # Cancellation
    /// As for [`send_bytes_async`](Self::send_bytes_async).
    ///
    /// # Errors
    /// Those of [`send_filled`](Self::send_filled); `Unsupported` outside of a tokio runtime.
    pub async fn send_filled_async(
        &mut self,
        bytes: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        let (until, mut filling) = (self.core.until(), Filling::new(bytes));
        let step = |connection: &mut Connection| filling.step(connection, &mut fill);
        let sent = self.core.drive_async(until, step).await;
        sent.inspect_err(|_| filling.abandon(&mut self.core.connection))
    }

    /// Like [`flush`](Self::flush), without blocking a thread.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush); `Unsupported` outside of a tokio runtime.
    pub async fn flush_async(&mut self) -> Result<(), Error> {
        let until = self.core.until();
        self.core.drive_async(until, Connection::flush).await
    }

    /// Like [`recv`](Self::recv), without blocking a thread. [`Message::bytes_async`] reads the message the same way.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv); `Unsupported` outside of a tokio runtime.
    pub async fn recv_async(&mut self) -> Result<Message<'_, R>, Error> {
        let until = self.core.until();
        self.core.drive_async(until, Connection::begin_plain).await?;
        Ok(Message::new(&mut self.core, until))
    }

    /// Like [`close`](Self::close), without blocking a thread.
    ///
    /// # Cancellation
    /// Dropping the future drops the channel.
    ///
    /// # Errors
    /// Those of [`close`](Self::close); `Unsupported` outside of a tokio runtime.
    pub async fn close_async(mut self) -> Result<Option<ExitStatus>, Error> {
        let (until, mut closing) = (self.core.close_deadline(), Closing::default());
        let step = |connection: &mut Connection| closing.step(connection);
        let closed = self.core.drive_async(until, step).await;
        closing.check(closed)?;
        let Some(child) = &self.core.child else { return Ok(None) };
        self.core.exit_status(process::wait_for_exit_async(child, until).await)
    }
}

/// For tasks of a tokio runtime: feature `tokio`.
impl<R> Message<'_, R> {
    /// Like [`bytes`](Self::bytes), without blocking a thread.
    ///
    /// # Cancellation
    /// Dropping the future discards the message.
    ///
    /// # Errors
    /// Those of [`bytes`](Self::bytes); `Unsupported` outside of a tokio runtime.
    pub async fn bytes_async(self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read_into_async(&mut bytes).await?;
        Ok(bytes)
    }

    /// Like [`read_into`](Self::read_into), without blocking a thread.
    ///
    /// # Cancellation
    /// Dropping the future discards the rest of the message.
    ///
    /// # Errors
    /// Those of [`read_into`](Self::read_into); `Unsupported` outside of a tokio runtime.
    pub async fn read_into_async(self, mut buffer: &mut Vec<u8>) -> Result<(), Error> {
        let (core, until) = self.core();
        core.connection.prepare_buffer(buffer)?;
        core.drive_async(until, |connection| connection.take_rest(&mut buffer)).await
    }
}

impl Core {
    /// Like [`drive`](Self::drive), without blocking a thread.
    pub(super) async fn drive_async(
        &mut self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut Connection) -> Result<StepResult, Error>,
    ) -> Result<(), Error> {
        // A future that was dropped may have left the connection asleep.
        self.connection.wake_up(Duration::ZERO);
        loop {
            let waited = match step(&mut self.connection) {
                Ok(StepResult::Done) => return Ok(()),
                Ok(StepResult::Blocked(want)) if self.connection.turn_is_over() => {
                    let_others_run().await;
                    self.next_turn(want, until)
                }
                Ok(StepResult::Blocked(want)) => self.wait_for_async(want, until).await,
                Err(error) => Err(error),
            };
            if let Err(error) = waited {
                return Err(process::explain_async(error, self.child.as_ref(), until).await);
            }
        }
    }

    /// Like [`send`](Self::send), for plain messages.
    pub(super) async fn send_async(
        &mut self,
        payload: Payload<'_>,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        let mut sending = Sending::new(kind::MESSAGE, 0);
        let step = |connection: &mut Connection| sending.step(connection, payload);
        let sent = self.drive_async(until, step).await;
        sent.inspect_err(|_| sending.abandon(&mut self.connection))
    }

    async fn wait_for_async(&mut self, want: Want, until: Option<Instant>) -> Result<(), Error> {
        if !self.before_wait(want, false)? {
            return Ok(());
        }
        let began = Instant::now();
        let arrived = self.wait_async(want, until).await;
        self.after_wait(want, began.elapsed(), arrived)
    }

    async fn wait_async(&mut self, want: Want, until: Option<Instant>) -> Result<bool, Error> {
        // Moved out, so that it can change while the rest is borrowed. Dropping the future drops it too.
        let mut watch = mem::take(&mut self.watch);
        let (slots, done) = poll_fn(|context| {
            let mut slots = match self.slots(want) {
                Ok(slots) => slots,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let waited = watch.poll_wait(context, &mut slots, until);
            waited.map(|done| Ok((slots.map(Slot::detach), done.map_err(Error::cannot(WAIT))?)))
        })
        .await?;
        self.watch = watch;
        self.note_wait(want, slots, done)
    }
}

/// Lets other tasks of the runtime run.
async fn let_others_run() {
    let mut has_run = false;
    poll_fn(|context| {
        if mem::replace(&mut has_run, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
