//! A channel between two processes.

mod core;
mod message;

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use pipewright::{CancelToken, Child, Command, ExitStatus, Handle};
use pipewright_os::channel::handle_channel::{ChannelEnd, MOST_HANDLES};

pub(crate) use self::core::Core;
use crate::connection::{Connection, Filling, Payload};
use crate::error::{Error, ErrorKind};
use crate::handshake;
use crate::options::{Options, Stats};
use crate::process;
use crate::wire::kind;
pub use message::{Lease, Loan, Message};

/// The type parameter of a [`Channel`] whose messages are plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raw {}

/// A channel between a host and a worker, or between any two processes. Each side sends messages, and receives those of
/// the other side whole and in order.
///
/// It runs over a *handle channel*: a two-way byte stream that can also pass handles, and that only these two processes
/// have. [`start`](Self::start) creates one.
///
/// `S` is the type of sent values and `R` that of received ones (feature `serde`). Bytes can always be sent.
///
/// A call waits for a message, or for room to send. The wait ends when the other side dies, when the
/// [timeout](Self::set_timeout) expires, or when the call is [cancelled](Self::set_cancel). While a call waits for
/// room it receives what arrives, so two sides that send at once never deadlock.
///
/// # Platform
/// Linux, macOS: a pair of Unix sockets (the handle channel) and two memory objects. Windows: an overlapped pipe for
/// both directions and two sections of memory.
///
/// Unix: if other code of this process calls `fork`, the channel stays with the parent. The child may drop it, which
/// neither ends the worker nor closes the parent's end. If both used it, each message would reach an arbitrary one of
/// them.
///
/// # Drop
/// Closes the connection without GOODBYE, the frame that ends it cleanly: the other side gets
/// [`Died`](ErrorKind::Died). Kills a worker that this channel has started. [`close`](Self::close) ends both cleanly.
///
/// ```no_run
/// use pipewright::Command;
/// use pipewright_ipc::{Channel, Options};
///
/// let mut command = Command::new("my-worker");
/// let mut worker: Channel = Channel::start(&mut command, &Options::default())?;
/// worker.send_bytes(b"a question")?;
/// let answer = worker.recv()?.bytes()?;
/// worker.close()?;
/// # Ok::<(), pipewright_ipc::Error>(())
/// ```
pub struct Channel<S = Raw, R = Raw> {
    pub(crate) core: Core,
    types: PhantomData<fn(S) -> R>,
}

impl<S, R> Channel<S, R> {
    /// Starts a worker and connects to it. Besides its stdio, the worker inherits only its end of the handle channel.
    /// It is killed when this channel is dropped and when this process ends.
    ///
    /// The protocol does not use the worker's stdio, which stays as the command sets it.
    ///
    /// # Platform
    /// The environment variable `PIPEWRIGHT_IPC` contains the number of the worker's end.
    ///
    /// # Errors
    /// [`Start`](ErrorKind::Start): the command cannot be started. [`NoHandshake`](ErrorKind::NoHandshake): the
    /// worker ended or was silent, and may not be a worker program. [`Refused`](ErrorKind::Refused), which names
    /// the field that differs. [`Unclaimed`](ErrorKind::Unclaimed): this process is itself a worker that has not called
    /// a function of [`worker`](crate::worker) yet. After an error the worker is gone.
    pub fn start(command: &mut Command, options: &Options) -> Result<Channel<S, R>, Error> {
        run_async_for_test!(Channel::start_async(command, options));
        let (end, mut child) = process::start(command)?;
        match handshake::host(end, Some(&child), options) {
            Ok(connection) => Ok(Channel::of(connection, Some(child), options)),
            Err(error) => {
                if let Some(until) = rejection_deadline(&error) {
                    let _ = process::wait_for_exit(&child, until);
                }
                Err(process::without_handshake(error, &mut child))
            }
        }
    }

    /// Connects as the host over one end of a handle channel that this program created or received itself.
    ///
    /// # Platform
    /// Unix: one end of a `UnixStream::pair`. Windows: an overlapped two-way pipe, as `docs/wire.md` specifies.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused), which names the field that differs; [`Died`](ErrorKind::Died) and
    /// [`TimedOut`](ErrorKind::TimedOut) if the other side does not answer.
    pub fn as_host(end: Handle, options: &Options) -> Result<Channel<S, R>, Error> {
        Channel::connected_as_host(ChannelEnd::from_handle(end)?, options)
    }

    pub(crate) fn connected_as_host(
        end: ChannelEnd,
        options: &Options,
    ) -> Result<Channel<S, R>, Error> {
        let connection = handshake::host(end, None, options)?;
        Ok(Channel::of(connection, None, options))
    }

    /// Connects as the worker over one end of a handle channel, as [`as_host`](Self::as_host) does for the host. A
    /// worker that [`start`](Self::start) started calls [`worker::channel`](crate::worker::channel) instead.
    ///
    /// # Errors
    /// Those of [`as_host`](Self::as_host).
    pub fn as_worker(end: Handle, options: &Options) -> Result<Channel<S, R>, Error> {
        Channel::connected_as_worker(ChannelEnd::from_handle(end)?, options)
    }

    pub(crate) fn connected_as_worker(
        end: ChannelEnd,
        options: &Options,
    ) -> Result<Channel<S, R>, Error> {
        run_async_for_test!(Channel::connected_async(end, options));
        let connection = handshake::worker(end, options)?;
        Ok(Channel::of(connection, None, options))
    }

    fn of(connection: Connection, child: Option<Child>, options: &Options) -> Channel<S, R> {
        let mut core = Core::new(connection, child, options.spin);
        core.timeout = options.timeout;
        Channel { core, types: PhantomData }
    }

    /// Sets the timeout of each later call. `None`: a call waits until the other side ends or closes the connection.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.core.timeout = timeout;
    }

    /// Sets a token. Once it is cancelled, each call that has to wait ends with [`Cancelled`](ErrorKind::Cancelled).
    pub fn set_cancel(&mut self, token: &CancelToken) {
        self.core.cancel = Some(token.clone());
    }

    /// Returns the worker, if this channel has started one.
    #[must_use]
    pub fn worker(&self) -> Option<&Child> {
        self.core.child.as_ref()
    }

    /// Returns the worker, for its piped streams and for other calls that need `&mut`.
    pub fn worker_mut(&mut self) -> Option<&mut Child> {
        self.core.child.as_mut()
    }

    /// Returns the statistics of the connection so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.connection.stats()
    }

    /// Sends a message. Returns when the kernel or the shared memory has all of it; the other side may not have read it
    /// yet.
    ///
    /// # Errors
    /// [`TooLong`](ErrorKind::TooLong): nothing was sent. [`Died`](ErrorKind::Died),
    /// [`TimedOut`](ErrorKind::TimedOut), [`Cancelled`](ErrorKind::Cancelled), [`Backlog`](ErrorKind::Backlog):
    /// part of the message was sent, and nothing more can be sent.
    #[inline]
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let until = self.core.until();
        self.core.send((kind::MESSAGE, 0), bytes, until)
    }

    /// Sends a message with handles. The other side gets its own handles to the same files, pipes and sockets.
    ///
    /// # Platform
    /// At most 64 handles a message. Unix: `SCM_RIGHTS`. Windows: `DuplicateHandle` by the host, into the worker
    /// and out of it, so only between a host and a worker that it has [started](Self::start). Handles are lost if
    /// their worker ends before the host has received them.
    ///
    /// # Errors
    /// Those of [`send_bytes`](Self::send_bytes). [`Io`](ErrorKind::Io): there are too many handles; the other side
    /// takes none, or on Windows its process is not known (`Unsupported`). Nothing was sent then.
    pub fn send_with_handles(&mut self, bytes: &[u8], handles: &[Handle]) -> Result<(), Error> {
        check_handles(handles)?;
        let until = self.core.until();
        self.core.send(
            (kind::MESSAGE, 0),
            Payload { bytes, tail: &[], handles: Some(handles) },
            until,
        )
    }

    /// Queues a message until the next call, so that many small ones are sent together. [`flush`](Self::flush)
    /// sends queued messages.
    ///
    /// # Errors
    /// Those of [`send_bytes`](Self::send_bytes).
    #[inline]
    pub fn queue_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.core.queue(bytes)
    }

    /// Sends the queued messages.
    ///
    /// # Errors
    /// Those of [`send_bytes`](Self::send_bytes).
    pub fn flush(&mut self) -> Result<(), Error> {
        let until = self.core.until();
        self.core.drive(until, Connection::flush)
    }

    /// Sends a message without waiting. Returns false, and sends nothing, if bytes of an earlier call are still unsent.
    ///
    /// The channel keeps the bytes that the kernel does not accept at once, and sends them with the next call.
    ///
    /// # Errors
    /// Those of [`send_bytes`](Self::send_bytes).
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        self.core.try_send(bytes)
    }

    /// Reserves room for a message of this length, to be filled in before it is sent: in shared memory, if it has room,
    /// so that the message is not copied.
    ///
    /// # Errors
    /// Those of [`send_bytes`](Self::send_bytes).
    ///
    /// ```no_run
    /// # fn example(channel: &mut pipewright_ipc::Channel) -> Result<(), pipewright_ipc::Error> {
    /// let mut loan = channel.reserve(1 << 20)?;
    /// loan.fill(7);
    /// loan.send()?;
    /// # Ok(()) }
    /// ```
    pub fn reserve(&mut self, bytes: usize) -> Result<Loan<'_>, Error> {
        let until = self.core.until();
        Loan::new(&mut self.core, bytes, until)
    }

    /// Sends a message of this length that `fill` makes, piece by piece, in shared memory if it has room. So a long
    /// message is not copied, and its first pieces are read while later ones are made. `fill` gets each piece in order;
    /// it has at most 64 KiB, and contains zeros or bytes of earlier messages of this side.
    ///
    /// # Panics
    /// If `fill` does. The message is then cut off: [`CutOff`](ErrorKind::CutOff).
    ///
    /// # Errors
    /// Those of [`send_bytes`](Self::send_bytes).
    ///
    /// ```no_run
    /// # fn example(channel: &mut pipewright_ipc::Channel) -> Result<(), pipewright_ipc::Error> {
    /// let mut numbers = 0_u8..;
    /// channel.send_filled(16 << 20, |piece| {
    ///     for (place, number) in piece.iter_mut().zip(&mut numbers) {
    ///         *place = number;
    ///     }
    /// })
    /// # }
    /// ```
    pub fn send_filled(
        &mut self,
        bytes: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        let (until, mut filling) = (self.core.until(), Filling::new(bytes));
        let sent = self.core.drive(until, |connection| filling.step(connection, &mut fill));
        sent.inspect_err(|_| filling.abandon(&mut self.core.connection))
    }

    /// Receives the next message. The rest of a long message may still be on its way.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed) and [`Died`](ErrorKind::Died), each after everything that the other side has
    /// sent; [`Protocol`](ErrorKind::Protocol), [`TimedOut`](ErrorKind::TimedOut),
    /// [`Cancelled`](ErrorKind::Cancelled).
    #[inline]
    pub fn recv(&mut self) -> Result<Message<'_, R>, Error> {
        let until = self.core.until();
        self.core.drive(until, Connection::begin_plain)?;
        Ok(Message::new(&mut self.core, until))
    }

    /// Receives the next message, if one has arrived.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> Result<Option<Message<'_, R>>, Error> {
        let until = self.core.until();
        let has_begun = self.core.try_begin(Connection::begin_plain)?;
        Ok(has_begun.then(|| Message::new(&mut self.core, until)))
    }

    /// Closes the connection: sends GOODBYE, waits for the GOODBYE of the other side, and discards the messages before
    /// it.
    ///
    /// If this channel has started the worker, it also waits for the worker's exit. It kills a worker that takes longer
    /// than the [timeout](Self::set_timeout), or than 5 s without a timeout. On the worker's side, `close` waits for
    /// the host until the timeout expires or the host ends.
    ///
    /// # Platform
    /// Unix: after GOODBYE `shutdown(SHUT_WR)`, so a worker that waits for the end of the stream gets it. A pipe of
    /// Windows has no such call.
    ///
    /// # Errors
    /// [`TimedOut`](ErrorKind::TimedOut), and other errors of the connection.
    pub fn close(mut self) -> Result<Option<ExitStatus>, Error> {
        run_async_for_test!(self.close_async());
        self.core.close()
    }
}

/// For tasks of a tokio runtime, which needs `enable_io` and `enable_time`: feature `tokio`.
#[cfg(feature = "tokio")]
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
    /// The first poll sends a message of at most 64 KiB, even if the future is then dropped. A longer one is cut off
    /// when the future is dropped, and nothing more can be sent: [`CutOff`](crate::ErrorKind::CutOff).
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
        self.core.send_async(Payload { bytes, tail: &[], handles: Some(handles) }, until).await
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
        self.core.close_async().await
    }
}

/// The time in which a worker has to exit after one side rejected the other.
const REJECTION_DEADLINE: Duration = Duration::from_secs(1);

/// Returns the deadline of a worker's exit if the error is a rejection, so that the worker can report it to its own
/// stderr before it is killed.
fn rejection_deadline(error: &Error) -> Option<Option<Instant>> {
    let is_rejection = matches!(error.kind(), ErrorKind::Refused { .. });
    is_rejection.then(|| Instant::now().checked_add(REJECTION_DEADLINE))
}

impl<S, R> fmt::Debug for Channel<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.worker().map(Child::id);
        f.debug_struct("Channel").field("worker", &pid).finish_non_exhaustive()
    }
}

/// Returns an error if one message cannot carry this many handles.
fn check_handles(handles: &[Handle]) -> Result<(), Error> {
    if handles.len() <= MOST_HANDLES {
        return Ok(());
    }
    let text =
        format!("{} handles exceed the maximum of {MOST_HANDLES} for one message", handles.len());
    let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, text);
    Err(Error::cannot("pass handles")(error))
}
