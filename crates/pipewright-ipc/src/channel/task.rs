//! The calls of a channel for tasks of a tokio runtime: feature `tokio`.
//!
//! Each does what its twin without `_async` does, by the same code; only the wait is another.

use std::future::poll_fn;
use std::mem;
use std::task::Poll;
use std::time::{Duration, Instant};

use pipewright::{Command, ExitStatus, Handle};
use pipewright_os::base::wait::Slot;
use pipewright_os::channel::handle_channel::End;

use super::core::{Core, END_TAKES, Want};
use super::incoming::Progress;
use super::line::Line;
use super::outgoing::FRAME_BYTES;
use super::sink::Nowhere;
use super::{COMPLAINT_TAKES, Channel, Message, may_carry};
use crate::error::{Error, ErrorKind, WAIT};
use crate::handshake;
use crate::host;
use crate::options::Options;
use crate::wire::{Header, kind};

/// For tasks of a tokio runtime, which needs `enable_io` and `enable_time`: feature `tokio`.
impl<S, R> Channel<S, R> {
    /// As [`start`](Self::start), and blocks no thread. The start itself is made in place.
    ///
    /// # Cancellation
    /// Dropping the future kills the worker.
    ///
    /// # Errors
    /// As [`start`](Self::start); outside of a tokio runtime, `Unsupported`.
    pub async fn start_async(
        command: &mut Command,
        options: &Options,
    ) -> Result<Channel<S, R>, Error> {
        let (end, mut child) = host::start(command)?;
        match handshake::host_async(end, &child, options).await {
            Ok(line) => Ok(Channel::of(line, Some(child), options)),
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Refused { .. }) {
                    // So that it can say why, where its own complaints go, before it is killed.
                    let until = Instant::now().checked_add(COMPLAINT_TAKES);
                    let _ = handshake::end_async(&child, until).await;
                }
                Err(host::without_handshake(error, &mut child))
            }
        }
    }

    pub(crate) async fn connected_async(
        end: End,
        options: &Options,
    ) -> Result<Channel<S, R>, Error> {
        let line = handshake::worker_async(end, options).await?;
        Ok(Channel::of(line, None, options))
    }

    /// As [`send_bytes`](Self::send_bytes), and blocks no thread.
    ///
    /// # Cancellation
    /// A message of at most 64 KiB has been sent with the first poll, whatever becomes of the future. Of a
    /// longer one dropping the future leaves out the rest, and nothing more can be sent:
    /// [`CutOff`](ErrorKind::CutOff).
    ///
    /// # Errors
    /// As [`send_bytes`](Self::send_bytes); outside of a tokio runtime, `Unsupported`.
    ///
    /// ```no_run
    /// # async fn example(channel: &mut pipewright_ipc::Channel) -> Result<(), pipewright_ipc::Error> {
    /// channel.send_bytes_async(b"a question").await?;
    /// let answer = channel.recv_async().await?.bytes_async().await?;
    /// # Ok(()) }
    /// ```
    pub async fn send_bytes_async(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let until = self.core.until();
        self.core.send_async(Header::new(kind::MESSAGE, 0), bytes, until).await
    }

    /// As [`send_with_handles`](Self::send_with_handles), and blocks no thread.
    ///
    /// # Cancellation
    /// As with [`send_bytes_async`](Self::send_bytes_async); but where there was no room, nothing has been sent, and
    /// the channel is as it was.
    ///
    /// # Errors
    /// As [`send_with_handles`](Self::send_with_handles); outside of a tokio runtime, `Unsupported`.
    pub async fn send_with_handles_async(
        &mut self,
        bytes: &[u8],
        handles: &[Handle],
    ) -> Result<(), Error> {
        may_carry(handles)?;
        let until = self.core.until();
        self.core.send_with_handles_async(bytes, handles, until).await
    }

    /// As [`flush`](Self::flush), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); outside of a tokio runtime, `Unsupported`.
    pub async fn flush_async(&mut self) -> Result<(), Error> {
        let until = self.core.until();
        let sent = match self.core.line.publish() {
            Ok(()) => self.core.hand_over_async(until).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(error) => Err(self.core.explain_async(error, until).await),
        }
    }

    /// As [`recv`](Self::recv), and blocks no thread. To read the message without blocking one either, use
    /// [`Message::bytes_async`].
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); outside of a tokio runtime, `Unsupported`.
    pub async fn recv_async(&mut self) -> Result<Message<'_, R>, Error> {
        let until = self.core.until();
        self.core.begin_async(until).await?;
        Ok(Message::new(&mut self.core, until))
    }

    /// As [`close`](Self::close), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future drops the channel.
    ///
    /// # Errors
    /// As [`close`](Self::close); outside of a tokio runtime, `Unsupported`.
    pub async fn close_async(mut self) -> Result<Option<ExitStatus>, Error> {
        let until = self.core.close_until();
        let core = &mut self.core;
        core.line.say_goodbye()?;
        if let Err(error) = core.hand_over_async(until).await {
            return Err(core.explain_async(error, until).await);
        }
        loop {
            match core.begin_async(until).await {
                Ok(()) => {}
                Err(error) if error.is_disconnect() => break,
                Err(error) => return Err(error),
            }
        }
        if core.child.is_none() {
            return Ok(None);
        }
        match core.end_async(until).await {
            Some(status) => Ok(Some(status)),
            None => Err(core.timed_out(Want::Message)),
        }
    }
}

/// For tasks of a tokio runtime: feature `tokio`.
impl<R> Message<'_, R> {
    /// As [`bytes`](Self::bytes), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future throws the message away.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); outside of a tokio runtime, `Unsupported`.
    pub async fn bytes_async(self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read_into_async(&mut bytes).await?;
        Ok(bytes)
    }

    /// As [`read_into`](Self::read_into), and blocks no thread.
    ///
    /// # Cancellation
    /// Dropping the future throws the rest of the message away.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into); outside of a tokio runtime, `Unsupported`.
    pub async fn read_into_async(self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        self.make_room(buffer)?;
        let (core, until) = self.core();
        core.receive_async(until, |line| line.take(usize::MAX, &mut &mut *buffer)).await?;
        core.line.end_of_body();
        Ok(())
    }
}

impl Core {
    /// As [`send`](Self::send).
    pub(super) async fn send_async(
        &mut self,
        first: Header,
        body: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Error> {
        self.line.may_send(body.len() as u64)?;
        let (frame, rest) = body.split_at(body.len().min(FRAME_BYTES));
        let put = self.line.put(&first_of(first, frame, rest), frame);
        self.send_rest_async(put, body, rest, until).await
    }

    /// As [`send_with_handles`](Self::send_with_handles).
    pub(super) async fn send_with_handles_async(
        &mut self,
        body: &[u8],
        handles: &[Handle],
        until: Option<Instant>,
    ) -> Result<(), Error> {
        self.line.may_send(body.len() as u64)?;
        let (frame, rest) = body.split_at(body.len().min(FRAME_BYTES));
        let header = first_of(Header::new(kind::MESSAGE, 0), frame, rest);
        if let Err(error) = self.begin_with_handles_async(&header, frame, handles, until).await {
            return Err(self.explain_async(error, until).await);
        }
        self.send_rest_async(Ok(()), body, rest, until).await
    }

    async fn begin_with_handles_async(
        &mut self,
        header: &Header,
        frame: &[u8],
        handles: &[Handle],
        until: Option<Instant>,
    ) -> Result<(), Error> {
        self.hand_over_async(until).await?;
        while !self.line.put_with_handles(header, frame, handles)? {
            self.wait_for_room_async(until).await?;
        }
        Ok(())
    }

    /// What follows the first frame. A future that is dropped meanwhile leaves a message that is cut off, until
    /// its last frame has been put where it goes by itself.
    async fn send_rest_async(
        &mut self,
        mut put: Result<(), Error>,
        body: &[u8],
        rest: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Error> {
        let mut frames = rest.chunks(FRAME_BYTES);
        loop {
            self.line.outgoing.cut_off = frames.len() > 0;
            let sent = match put {
                Ok(()) => self.hand_over_async(until).await,
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                self.line.outgoing.cut_off = true;
                return Err(self.explain_async(error, until).await);
            }
            let Some(frame) = frames.next() else { break };
            put = self.line.put(&Header::new(kind::PART, frame.len()), frame);
        }
        self.line.note_sent(body.len() as u64, 1 + rest.len().div_ceil(FRAME_BYTES));
        Ok(())
    }

    pub(super) async fn hand_over_async(&mut self, until: Option<Instant>) -> Result<(), Error> {
        while self.line.end.flush()? > 0 {
            self.wait_for_room_async(until).await?;
        }
        Ok(())
    }

    async fn wait_for_room_async(&mut self, until: Option<Instant>) -> Result<(), Error> {
        self.may_wait_for_room()?;
        let arrived = self.wait_async(Want::Room, until).await?;
        self.take_in(arrived)
    }

    pub(super) async fn begin_async(&mut self, until: Option<Instant>) -> Result<(), Error> {
        if self.line.body().is_some() {
            self.receive_async(until, |line| line.take(usize::MAX, &mut Nowhere)).await?;
            self.line.end_of_body();
        }
        self.receive_async(until, Line::begin).await?;
        self.line.has_begun(kind::MESSAGE)
    }

    pub(super) async fn receive_async(
        &mut self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut Line) -> Result<Progress, Error>,
    ) -> Result<(), Error> {
        // A future that was dropped may have left it asleep.
        self.line.wake_up(Duration::ZERO);
        loop {
            let waited = match step(&mut self.line) {
                Ok(Progress::Done) => return Ok(()),
                Ok(Progress::Nothing) => self.wait_for_more_async(until).await,
                Err(error) => Err(error),
            };
            if let Err(error) = waited {
                return Err(self.explain_async(error, until).await);
            }
        }
    }

    async fn wait_for_more_async(&mut self, until: Option<Instant>) -> Result<(), Error> {
        if !self.is_about_to_wait(false)? {
            return Ok(());
        }
        let began = Instant::now();
        let waited = self.wait_async(Want::Message, until).await;
        self.has_waited(began.elapsed());
        waited.map(drop)
    }

    async fn wait_async(&mut self, want: Want, until: Option<Instant>) -> Result<bool, Error> {
        // Lent, so that it can be changed while the rest is looked at. Who drops the future drops it as well.
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

    /// As [`explain`](Self::explain).
    async fn explain_async(&mut self, error: Error, until: Option<Instant>) -> Error {
        if self.child.is_none() || !matches!(error.kind(), ErrorKind::Died { status: None }) {
            return error;
        }
        let enough = Instant::now().checked_add(END_TAKES);
        match self.end_async([until, enough].into_iter().flatten().min()).await {
            Some(status) => Error::new(ErrorKind::Died { status: Some(status) }),
            None => error,
        }
    }

    /// How the child has ended, or ends until then.
    async fn end_async(&mut self, until: Option<Instant>) -> Option<ExitStatus> {
        let child = self.child.as_ref()?;
        handshake::end_async(child, until).await
    }
}

/// The header of the first frame, with what else the message is.
fn first_of(first: Header, frame: &[u8], rest: &[u8]) -> Header {
    let total = (!rest.is_empty()).then_some((frame.len() + rest.len()) as u64);
    Header { total, length: frame.len() as u32, ..first }
}
