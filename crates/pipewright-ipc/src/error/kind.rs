//! The kinds of failure, and their facts.

use std::fmt;

use pipewright::{Child, ExitStatus, OutOfMemory};

/// The kinds of failure, each with the facts that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The other side has closed the connection cleanly.
    Closed,
    /// The other side ended, or dropped its end of the connection, without a clean close. Everything that it sent before
    /// was received.
    Died {
        /// Its exit status, if it is a child of this process and has exited. `None`: only its end of the connection is
        /// known to be gone, and it may be running.
        status: Option<ExitStatus>,
    },
    /// The timeout expired.
    TimedOut {
        /// The event that did not happen in time.
        waiting_for: &'static str,
        /// The state of the other side.
        peer: Peer,
    },
    /// The [`CancelToken`](pipewright::CancelToken) was cancelled.
    Cancelled,
    /// The two sides do not match, and one has rejected the other.
    Refused {
        /// The side that found the difference.
        by: Side,
        /// The field that differs: `version`, `app`, `build`, `arch`, `user`, `salt`; or `shared memory`, which one side
        /// [requires](crate::SharedMemory::Required) and the connection does not have.
        field: String,
        /// The host's value.
        host: String,
        /// The worker's value.
        worker: String,
    },
    /// The other side violated the protocol. Nothing more is read from it.
    Protocol {
        /// The violation.
        what: String,
    },
    /// The message exceeds the agreed maximum.
    TooLong {
        /// The length of the message.
        bytes: u64,
        /// The agreed maximum.
        most: u64,
    },
    /// The other side sends but does not read, and has sent more than
    /// [`max_backlog_bytes`](crate::Options::max_backlog_bytes).
    Backlog {
        /// The most bytes kept in memory.
        most: usize,
    },
    /// A timeout or a cancellation cut an earlier message off, so nothing more can be sent: the other side would take a
    /// new message for the rest of it.
    CutOff,
    /// The worker could not be started, or this process was not started as a worker.
    Start,
    /// This process was started as a worker and has not connected to its host yet (*claimed its handle channel*), so it
    /// cannot start workers. Otherwise a program that starts itself as its worker, and forgets to check
    /// [`worker::is_worker`](crate::worker::is_worker), would start itself endlessly. Nothing was started.
    Unclaimed,
    /// The worker was started and did not complete the handshake: it ended, closed the connection, or was silent until
    /// the deadline (then [`Error::is_timeout`](crate::Error::is_timeout) is true). Perhaps the program is not a worker.
    /// No call was lost.
    NoHandshake {
        /// The worker's process id.
        pid: u32,
        /// Its exit status, if it ended by itself.
        status: Option<ExitStatus>,
        /// The last whole lines of its stderr. Empty if there are none, and for a [`Channel`](crate::Channel) whose
        /// command directs stderr elsewhere than to a pipe.
        stderr_tail: String,
    },
    /// The worker of the call ended, and may have executed the call. The call is not retried: it is not
    /// [idempotent](crate::Request::idempotent), its [retries](crate::PoolOptions::retries) are used up, or the caller
    /// has already received an item or a question.
    Lost {
        /// The worker's process id.
        pid: u32,
        /// Its exit status, if known.
        status: Option<ExitStatus>,
        /// The last whole lines of its stderr.
        stderr_tail: String,
        /// The number of workers that got the call: more than one if it was retried. All of them ended.
        attempts: u32,
        /// The facts, if the kernel killed a process of the worker for lack of memory and the workers have
        /// [limits](pipewright::Command::limits).
        out_of_memory: Option<OutOfMemory>,
    },
    /// The worker's handler returned an error.
    Failed {
        /// The text of the error: at most the first 4 KiB, cut between characters.
        message: String,
        /// The length of the whole text that the worker sent.
        bytes: usize,
    },
    /// The host declined a question that its worker asked, or accepts no items.
    Declined {
        /// The host's reason: at most the first 4 KiB, cut between characters.
        message: String,
        /// The length of the whole reason.
        bytes: usize,
    },
    /// The worker does not support what the call needs: its library is older, or in another language.
    Unsupported {
        /// The missing capability, as in `docs/wire.md`.
        capability: &'static str,
    },
    /// The call has ended, and takes no more [items](crate::ItemSender). Its result says why.
    CallEnded,
    /// The queue of calls is full.
    Full {
        /// The most calls that may wait for a worker.
        most: usize,
    },
    /// The pool shuts down and accepts no more calls.
    ShutDown,
    /// A value could not be serialized or deserialized.
    Codec,
    /// Another error of the system.
    Io,
}

/// One of the two sides of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that started the other one.
    Host,
    /// The side that was started.
    Worker,
}

/// The state of the other side when a timeout expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// A running child of this process.
    Runs {
        /// Its process id.
        pid: u32,
    },
    /// A stopped child of this process (SIGSTOP, a debugger).
    Stopped {
        /// Its process id.
        pid: u32,
    },
    /// Connected; no more is known.
    Connected,
    /// None: no worker was free.
    Nobody,
}

impl Peer {
    pub(crate) fn of(child: Option<&Child>) -> Peer {
        match child {
            Some(child) if child.child_handle().is_stopped() => Peer::Stopped { pid: child.id() },
            Some(child) => Peer::Runs { pid: child.id() },
            None => Peer::Connected,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Side::Host => "host",
            Side::Worker => "worker",
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Runs { pid } => write!(f, "the worker (process {pid}) is running and silent"),
            Peer::Stopped { pid } => write!(f, "the worker (process {pid}) is stopped"),
            Peer::Connected => f.write_str("the other side is connected and silent"),
            Peer::Nobody => f.write_str("none was available"),
        }
    }
}
