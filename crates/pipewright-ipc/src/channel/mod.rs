//! A channel between two processes.

mod attempts;
mod core;
mod incoming;
mod line;
mod loan;
mod message;
mod outgoing;
mod pieces;
mod sink;
mod spin;
#[cfg(feature = "tokio")]
mod task;
#[cfg(feature = "serde")]
mod typed;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use pipewright::{CancelToken, Child, Command, ExitStatus, Handle};
use pipewright_os::channel::handle_channel::{End, MOST_HANDLES};

pub(crate) use self::core::{Core, status_of};
use crate::error::{Error, ErrorKind, Side};
use crate::handshake;
use crate::host;
use crate::options::Options;
use crate::stats::Stats;
use crate::wire::{Header, kind};
pub(crate) use incoming::Progress;
pub(crate) use line::{Limits, Line, SharedRing};
pub use loan::Loan;
pub use message::{Lease, Message};
pub(crate) use pieces::{Piece, Pieces, Sending};
pub(crate) use spin::Spin;
#[cfg(feature = "serde")]
pub(crate) use typed::codec;

/// The type of messages that are bytes and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raw {}

/// A channel between a host and a worker, or between any two processes that share a link: each sends
/// messages, and receives those of the other one whole and in order.
///
/// `S` is what is sent and `R` what is received, where that are values (feature `serde`); bytes can
/// always be sent.
///
/// A call waits where it has to: for a message, or for room. It ends when the other side dies, when its
/// [time](Self::set_timeout) is over, or when it is [cancelled](Self::set_cancel). While it waits for
/// room it takes in what comes, so two sides that send at once never wait for each other.
///
/// # Platform
/// Linux, macOS: a pair of Unix sockets, and two memory objects. Windows: an overlapped pipe for both
/// directions, and two sections of memory.
///
/// Unix: after a `fork` by other code of this process the channel is the parent's. The child may drop it, which
/// neither ends the worker nor closes what the parent has; with two who talk, nobody knows who hears what.
///
/// # Drop
/// Closes the connection without a word; the other side finds it gone. A worker that was started by
/// this is killed. [`close`](Self::close) is the polite way.
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
    /// Starts a worker, and connects to it. The worker gets its end of the link and no other handle, and
    /// ends with this channel and with this process.
    ///
    /// The protocol does not touch the worker's stdio, which is as the command says.
    ///
    /// # Platform
    /// The number of the worker's end is in its environment (`PIPEWRIGHT_IPC`).
    ///
    /// # Errors
    /// [`Start`](ErrorKind::Start): the command cannot be started. [`NoHandshake`](ErrorKind::NoHandshake): the worker
    /// ended or was silent, and may not be a worker program. [`Refused`](ErrorKind::Refused), which names what differs.
    /// [`Unclaimed`](ErrorKind::Unclaimed): this process is a worker itself and has not claimed its link. There is no
    /// worker then.
    pub fn start(command: &mut Command, options: &Options) -> Result<Channel<S, R>, Error> {
        by_its_twin!(Channel::start_async(command, options));
        let (end, mut child) = host::start(command)?;
        match handshake::host(end, Some(&child), options) {
            Ok(line) => Ok(Channel::of(line, Some(child), options)),
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Refused { .. }) {
                    // So that it can say why, where its own complaints go, before it is killed.
                    let until = std::time::Instant::now().checked_add(COMPLAINT_TAKES);
                    let _ = status_of(child.child_handle(), until);
                }
                Err(host::without_handshake(error, &mut child))
            }
        }
    }

    /// Connects as the host through a link that was passed on in another way.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused), which names what differs; [`Died`](ErrorKind::Died) and
    /// [`TimedOut`](ErrorKind::TimedOut) if the other side does not answer.
    pub fn as_host(link: Handle, options: &Options) -> Result<Channel<S, R>, Error> {
        Channel::connected_as_host(End::from_handle(link)?, options)
    }

    pub(crate) fn connected_as_host(end: End, options: &Options) -> Result<Channel<S, R>, Error> {
        let line = handshake::host(end, None, options)?;
        Ok(Channel::of(line, None, options))
    }

    /// Connects as the worker through a link that was passed on in another way than
    /// [`worker::channel`](crate::worker::channel) takes it from.
    ///
    /// # Errors
    /// As [`as_host`](Self::as_host).
    pub fn as_worker(link: Handle, options: &Options) -> Result<Channel<S, R>, Error> {
        Channel::connected_as_worker(End::from_handle(link)?, options)
    }

    pub(crate) fn connected_as_worker(end: End, options: &Options) -> Result<Channel<S, R>, Error> {
        by_its_twin!(Channel::connected_async(end, options));
        let line = handshake::worker(end, options)?;
        Ok(Channel::of(line, None, options))
    }

    fn of(line: Line, child: Option<Child>, options: &Options) -> Channel<S, R> {
        let mut core = Core::new(line, child, options.spin);
        core.timeout = options.timeout;
        Channel { core, types: PhantomData }
    }

    /// How long each call may wait from now on; `None`: for as long as the other side is there.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.core.timeout = timeout;
    }

    /// Ends every call that waits, now and later, when the token is cancelled.
    pub fn set_cancel(&mut self, token: &CancelToken) {
        self.core.cancel = Some(token.clone());
    }

    /// The worker, where this channel has started one.
    #[must_use]
    pub fn worker(&self) -> Option<&Child> {
        self.core.child.as_ref()
    }

    /// The worker's streams, where they are piped, and whatever else wants to own them.
    pub fn worker_mut(&mut self) -> Option<&mut Child> {
        self.core.child.as_mut()
    }

    /// What went over the connection so far, and how.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.line.stats()
    }

    /// Sends a message. When this returns it is in the hands of the system, or in the ring.
    ///
    /// # Errors
    /// [`TooLong`](ErrorKind::TooLong): nothing was sent. [`Died`](ErrorKind::Died),
    /// [`TimedOut`](ErrorKind::TimedOut), [`Cancelled`](ErrorKind::Cancelled),
    /// [`Backlog`](ErrorKind::Backlog): part of it was sent, and nothing more can be.
    #[inline]
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let until = self.core.until();
        self.core.send(Header::new(kind::MESSAGE, 0), bytes, until)
    }

    /// As [`send_bytes`](Self::send_bytes), with handles: the other side gets its own handles of the
    /// same files, pipes and sockets.
    ///
    /// # Platform
    /// At most 64 with one message. Unix: `SCM_RIGHTS`. Windows: `DuplicateHandle` by the host, into the worker
    /// and out of it; so only between a host and the worker that it has [started](Self::start), and what a
    /// worker sends that ends before the host has received it is lost with it.
    ///
    /// # Errors
    /// As [`send_bytes`](Self::send_bytes); an [`Io`](ErrorKind::Io) error where there are too many, and on
    /// Windows where the process at the other end is not known (`Unsupported`).
    pub fn send_with_handles(&mut self, bytes: &[u8], handles: &[Handle]) -> Result<(), Error> {
        may_carry(handles)?;
        let until = self.core.until();
        self.core.send_with_handles(bytes, handles, until)
    }

    /// As [`send_bytes`](Self::send_bytes), where the message may be kept until the next call, so that
    /// many small ones go together. [`flush`](Self::flush) sends what is kept.
    ///
    /// # Errors
    /// As [`send_bytes`](Self::send_bytes).
    #[inline]
    pub fn queue_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.core.queue(bytes)
    }

    /// Sends what is kept.
    ///
    /// # Errors
    /// As [`send_bytes`](Self::send_bytes).
    pub fn flush(&mut self) -> Result<(), Error> {
        let until = self.core.until();
        let sent = self.core.line.publish().and_then(|()| self.core.hand_over(until));
        sent.map_err(|error| self.core.explain(error, until))
    }

    /// Sends a message if that needs no waiting. `false`: it does, and nothing was sent.
    ///
    /// What the system does not take at once is kept, and goes with the next call.
    ///
    /// # Errors
    /// As [`send_bytes`](Self::send_bytes).
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        self.core.try_send(bytes)
    }

    /// Room for a message of that length, which is filled in where the other side will read it.
    ///
    /// # Errors
    /// As [`send_bytes`](Self::send_bytes).
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

    /// The next message. Of a long one the rest may still be on its way.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed) and [`Died`](ErrorKind::Died), each after everything that the other
    /// side has sent; [`Protocol`](ErrorKind::Protocol), [`TimedOut`](ErrorKind::TimedOut),
    /// [`Cancelled`](ErrorKind::Cancelled).
    #[inline]
    pub fn recv(&mut self) -> Result<Message<'_, R>, Error> {
        let until = self.core.until();
        self.core.begin(until)?;
        Ok(Message::new(&mut self.core, until))
    }

    /// The next message, if one is there.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn try_recv(&mut self) -> Result<Option<Message<'_, R>>, Error> {
        let until = self.core.until();
        if self.core.try_begin()? == Progress::Nothing {
            return Ok(None);
        }
        Ok(Some(Message::new(&mut self.core, until)))
    }

    /// Says that no more comes, and waits until the other side says so too; what it still sends is thrown
    /// away. Where this channel has started the worker, its end is waited for as well; a worker that
    /// takes longer than the [timeout](Self::set_timeout), or 5 s where there is none, is killed. A worker
    /// waits for its host for as long as the timeout says, or as that lives.
    ///
    /// # Errors
    /// [`TimedOut`](ErrorKind::TimedOut), and what else befalls the connection.
    pub fn close(mut self) -> Result<Option<ExitStatus>, Error> {
        by_its_twin!(self.close_async());
        self.core.close_in_time()
    }
}

/// How long a worker has to end after it was refused, or has refused.
const COMPLAINT_TAKES: Duration = Duration::from_secs(1);

impl<S, R> fmt::Debug for Channel<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.worker().map(Child::id);
        f.debug_struct("Channel").field("worker", &pid).finish_non_exhaustive()
    }
}

/// The error of a side that insists on shared memory.
pub(crate) fn no_shared_memory(by: Side, why: &str) -> Error {
    let field = "shared memory".to_owned();
    Error::new(ErrorKind::Refused { by, field, host: why.to_owned(), worker: why.to_owned() })
}

/// Whether so many handles can go with one message.
fn may_carry(handles: &[Handle]) -> Result<(), Error> {
    if handles.len() <= MOST_HANDLES {
        return Ok(());
    }
    let words = "too many handles for one message";
    let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, words);
    Err(Error::cannot("pass them")(error))
}
