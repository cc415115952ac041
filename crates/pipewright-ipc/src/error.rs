//! What went wrong between a host and a worker, in one line and with its facts.

use std::fmt;
use std::io;
use std::sync::Arc;

use pipewright::{Child, ExitStatus};

use crate::words::{OneLine, gist};

/// Why a message did not come, or did not go.
///
/// Prints as one line. The system's error, if there was one, is the
/// [`source`](std::error::Error::source).
pub struct Error(Box<Facts>);

struct Facts {
    kind: ErrorKind,
    /// What could not be done, where it is the system that says so.
    doing: Option<&'static str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// What the system may [refuse](Error::cannot) in more than one place.
pub(crate) const WAIT: &str = "wait for the other side";
pub(crate) const WATCH_TOKEN: &str = "watch a cancel token";

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
    /// The worker could not be started, or has not been started as one.
    Start,
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
            Some(child) if child.as_exit().is_stopped() => Peer::Stopped { pid: child.id() },
            Some(child) => Peer::Runs { pid: child.id() },
            None => Peer::Connected,
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind) -> Error {
        Error(Box::new(Facts { kind, doing: None, source: None }))
    }

    pub(crate) fn caused(
        kind: ErrorKind,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error(Box::new(Facts { kind, doing: None, source: Some(source.into().into()) }))
    }

    /// What the system says, of something that was to be done: "cannot ...".
    pub(crate) fn cannot(doing: &'static str) -> impl Fn(io::Error) -> Error {
        move |error| {
            let mut error = Error::from(error);
            error.0.doing = Some(doing);
            error
        }
    }

    /// The same error, for one more of those that it concerns.
    pub(crate) fn share(&self) -> Error {
        let Facts { kind, doing, source } = &*self.0;
        Error(Box::new(Facts { kind: kind.clone(), doing: *doing, source: source.clone() }))
    }

    /// What a worker says of a call that it could not do.
    pub(crate) fn failed(message: &[u8]) -> Error {
        let message = String::from_utf8_lossy(message).into_owned();
        Error::new(ErrorKind::Failed { message })
    }

    pub(crate) fn protocol(what: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Protocol { what: what.to_string() })
    }

    /// What kind of failure it is, with its facts.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Whether the time was over.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind(), ErrorKind::TimedOut { .. })
    }

    /// Whether the other side is gone, properly or not.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        matches!(self.kind(), ErrorKind::Closed | ErrorKind::Died { .. })
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Error::caused(ErrorKind::Died { status: None }, error),
            // What a link says of handles, and memory of what it was passed.
            io::ErrorKind::InvalidData => Error::protocol(error),
            _ => Error::caused(ErrorKind::Io, error),
        }
    }
}

impl From<pipewright::Error> for Error {
    fn from(error: pipewright::Error) -> Error {
        Error::caused(ErrorKind::Start, error)
    }
}

impl From<crate::ring::Broken> for Error {
    fn from(broken: crate::ring::Broken) -> Error {
        Error::protocol(broken)
    }
}

impl From<crate::wire::Invalid> for Error {
    fn from(invalid: crate::wire::Invalid) -> Error {
        Error::protocol(invalid)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.kind, &self.0.source) {
            (ErrorKind::Closed, _) => f.write_str("the other side has closed the connection"),
            (ErrorKind::Died { status: Some(status) }, _) => write!(f, "the worker died: {status}"),
            (ErrorKind::Died { status: None }, _) => {
                f.write_str("the other side is gone without a word")
            }
            (ErrorKind::TimedOut { waiting_for, peer }, source) => {
                write!(f, "timed out waiting for {waiting_for}: {peer}")?;
                match source {
                    Some(why) => write!(f, ", and the last one did not start: {why}"),
                    None => Ok(()),
                }
            }
            (ErrorKind::Cancelled, _) => f.write_str("cancelled"),
            (ErrorKind::Refused { by, field, host, worker }, _) => write!(
                f,
                "the {by} refused the connection: {field} differs (host {host:?}, worker {worker:?})"
            ),
            (ErrorKind::Protocol { what }, _) => {
                write!(f, "the other side broke the protocol: {what}")
            }
            (ErrorKind::TooLong { bytes, most }, _) => {
                write!(f, "a message of {bytes} bytes, where {most} was agreed")
            }
            (ErrorKind::Backlog { most }, _) => write!(
                f,
                "the other side does not read, and has sent more than the {most} bytes that are kept"
            ),
            (ErrorKind::CutOff, _) => f.write_str("an earlier message was cut off"),
            (ErrorKind::Start, Some(source)) => write!(f, "no worker: {source}"),
            (ErrorKind::Start, None) => f.write_str("this process was not started as a worker"),
            (ErrorKind::Lost { pid, status, last_words }, source) => {
                write!(f, "worker {pid} was lost with the call")?;
                match (status, source) {
                    (Some(status), None) => write!(f, ": {status}")?,
                    (Some(status), Some(source)) => write!(f, ": {source} ({status})")?,
                    (None, Some(source)) => write!(f, ": {source}")?,
                    (None, None) => {}
                }
                gist(last_words).try_for_each(|line| write!(f, ": {}", OneLine(line)))
            }
            (ErrorKind::Failed { message }, _) => {
                write!(f, "the worker failed: {}", OneLine(message))
            }
            (ErrorKind::Declined { message }, _) => {
                write!(f, "the host declined: {}", OneLine(message))
            }
            (ErrorKind::Full { most }, _) => {
                write!(f, "{most} calls wait for a worker, and no more may")
            }
            (ErrorKind::ShutDown, _) => f.write_str("the pool takes no more calls"),
            (ErrorKind::Codec, Some(source)) => write!(f, "a value and its bytes: {source}"),
            (ErrorKind::Codec, None) => f.write_str("a value and its bytes do not match"),
            (ErrorKind::Io, Some(source)) => {
                let doing = self.0.doing.unwrap_or("talk to the other side");
                write!(f, "cannot {doing}: {source}")
            }
            (ErrorKind::Io, None) => f.write_str("not possible here"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("message", &format_args!("{self}"))
            .field("kind", &self.0.kind)
            .field("source", &self.0.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}

impl From<Error> for io::Error {
    /// The whole error is inside.
    fn from(error: Error) -> io::Error {
        let kind = match error.kind() {
            ErrorKind::TimedOut { .. } => io::ErrorKind::TimedOut,
            ErrorKind::Closed | ErrorKind::Died { .. } => io::ErrorKind::BrokenPipe,
            ErrorKind::Protocol { .. } | ErrorKind::Codec => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_says_is_one_line_and_tells_a_terminal_nothing() {
        let said = "\u{1b}[31mno\tdisk\r\nat all\n".to_owned();
        let words = r"\u{1b}[31mno disk\r\nat all";
        let failed = Error::failed(said.as_bytes());
        assert_eq!(failed.to_string(), format!("the worker failed: {words}"));
        // Nothing is lost of it.
        assert_eq!(*failed.kind(), ErrorKind::Failed { message: said.clone() });
        let declined = Error::new(ErrorKind::Declined { message: said });
        assert_eq!(declined.to_string(), format!("the host declined: {words}"));
        let last_words = "first\nlast\u{7}".to_owned();
        let lost = Error::new(ErrorKind::Lost { pid: 7, status: None, last_words });
        assert_eq!(lost.to_string(), r"worker 7 was lost with the call: last\u{7}");
    }
}
