//! The kinds of failure, and their facts.

use std::fmt;

use pipewright::{Child, ExitStatus};

/// The kinds of failure, each with the facts that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The other side has said that no more comes.
    Closed,
    /// The other side is gone without having said so. Everything that it sent before has been
    /// received.
    Died {
        /// How it ended, where it was a child of this process and has ended. `None`: it has closed the
        /// connection, and may be running.
        status: Option<ExitStatus>,
    },
    /// The time was over.
    TimedOut {
        /// What was being waited for.
        waiting_for: &'static str,
        /// What is known of the other side.
        peer: Peer,
    },
    /// The [`CancelToken`](pipewright::CancelToken) was cancelled.
    Cancelled,
    /// One side refuses to talk to the other one.
    Refused {
        /// Which side found it.
        by: Side,
        /// What differs: `version`, `app`, `build`, `arch`, `user`, `salt`.
        field: String,
        /// What the host has.
        host: String,
        /// What the worker has.
        worker: String,
    },
    /// The other side said something that the protocol does not know. Nothing more is read from it.
    Protocol {
        /// What it was.
        what: String,
    },
    /// The message is longer than was agreed.
    TooLong {
        /// How long it is.
        bytes: u64,
        /// The most that was agreed.
        most: u64,
    },
    /// The other side does not read, and has meanwhile sent so much that it would have to be kept in
    /// memory.
    Backlog {
        /// The most that is kept.
        most: usize,
    },
    /// An earlier message was cut off, by a timeout or a cancel: the other side could not tell a new
    /// one from the rest of it.
    CutOff,
    /// The worker could not be started, or this process was not started as one.
    Start,
    /// This process was itself started as a worker and has not claimed its link, so it may start no workers: a program
    /// that starts itself as its worker and forgets to ask [`worker::is_worker`](crate::worker::is_worker) would do so
    /// without end. Nothing was started.
    Unclaimed,
    /// The worker was started, and did not complete the handshake: it ended, closed its link, or was silent until the
    /// deadline (then [`Error::is_timeout`](crate::Error::is_timeout) is true). It may not be a worker program. No call was lost.
    NoHandshake {
        /// The worker's process id.
        pid: u32,
        /// Its exit status, if it ended by itself.
        status: Option<ExitStatus>,
        /// The last whole lines that it wrote to its stderr. Empty where nothing was written, and for a
        /// [`Channel`](crate::Channel) whose command does not pipe stderr: then they went where the command says.
        last_words: String,
    },
    /// The worker that had the call is gone, and the call was not tried again: it may have been done.
    Lost {
        /// The worker's process id.
        pid: u32,
        /// How it ended, where that is known.
        status: Option<ExitStatus>,
        /// What it wrote last to its stderr; whole lines, the last ones.
        last_words: String,
    },
    /// The worker says that it could not do what it was asked for.
    Failed {
        /// Its reason.
        message: String,
    },
    /// The host does not do what its worker asks for during a call.
    Declined {
        /// Its reason.
        message: String,
    },
    /// More calls wait for a worker than may.
    Full {
        /// The most that may.
        most: usize,
    },
    /// The pool takes no more calls.
    ShutDown,
    /// A value could not be turned into bytes, or back.
    Codec,
    /// The system reported something else.
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

/// What is known of the other side when the time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// It is a child of ours, and runs.
    Runs {
        /// Its process id.
        pid: u32,
    },
    /// It is a child of ours, and stopped (SIGSTOP, a debugger).
    Stopped {
        /// Its process id.
        pid: u32,
    },
    /// It is connected; no more is known.
    Connected,
    /// There is none: no worker was free.
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
            Peer::Runs { pid } => write!(f, "the worker (process {pid}) runs and is silent"),
            Peer::Stopped { pid } => write!(f, "the worker (process {pid}) is stopped"),
            Peer::Connected => f.write_str("the other side is connected and silent"),
            Peer::Nobody => f.write_str("none was free"),
        }
    }
}
