//! What went wrong between a host and a worker, in one line and with its facts.

mod kind;

use std::fmt;
use std::io;
use std::sync::Arc;

use pipewright::ExitStatus;

use crate::words::{OneLine, gist};
pub use kind::{ErrorKind, Peer, Side};

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

    /// The error of a worker that ended, closed its link, or was silent for too long before the handshake was over.
    pub(crate) fn no_handshake(
        (pid, status): (u32, Option<ExitStatus>),
        last_words: String,
        timeout: Option<&Error>,
    ) -> Error {
        let mut error = Error::new(ErrorKind::NoHandshake { pid, status, last_words });
        error.0.source = timeout.map(|timeout| Arc::new(timeout.share()) as _);
        error
    }

    pub(crate) fn protocol(what: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Protocol { what: what.to_string() })
    }

    /// What kind of failure it is, with its facts.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns true if the time was over.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match self.kind() {
            ErrorKind::TimedOut { .. } => true,
            // Nothing but a deadline is a source of it.
            ErrorKind::NoHandshake { .. } => self.0.source.is_some(),
            _ => false,
        }
    }

    /// Returns true if the other side is gone, properly or not.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        match self.kind() {
            ErrorKind::Closed | ErrorKind::Died { .. } => true,
            ErrorKind::NoHandshake { .. } => !self.is_timeout(),
            _ => false,
        }
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
            (ErrorKind::Unclaimed, _) => f.write_str(
                "this process was started as a worker and has not claimed its link, so it may start no workers: \
                 call worker::serve first if worker::is_worker() is true",
            ),
            (ErrorKind::NoHandshake { pid, status, last_words }, source) => {
                match (source, status) {
                    (Some(timeout), _) => write!(f, "{timeout}")?,
                    (None, Some(_)) => write!(f, "worker {pid} ended before the handshake")?,
                    (None, None) => write!(f, "worker {pid} closed its link before the handshake")?,
                }
                // A signal that ended it says nothing about the program.
                if status.is_none_or(|status| status.code().is_some()) {
                    f.write_str(", so it may not be a worker program")?;
                }
                if let Some(status) = status {
                    write!(f, ": {status}")?;
                }
                gist(last_words).try_for_each(|line| write!(f, ": {}", OneLine(line)))
            }
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
            _ if error.is_timeout() => io::ErrorKind::TimedOut,
            _ if error.is_disconnect() => io::ErrorKind::BrokenPipe,
            ErrorKind::Protocol { .. } | ErrorKind::Codec => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
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
        let lost =
            Error::new(ErrorKind::Lost { pid: 7, status: None, last_words: last_words.clone() });
        assert_eq!(lost.to_string(), r"worker 7 was lost with the call: last\u{7}");
        let silent = Error::new(ErrorKind::NoHandshake { pid: 7, status: None, last_words });
        let words = r"worker 7 closed its link before the handshake, so it may not be a worker program: last\u{7}";
        assert_eq!(silent.to_string(), words);
        // And no longer than a line may be.
        let long = Error::failed("x".repeat(10_000).as_bytes()).to_string();
        assert_eq!(long, format!("the worker failed: {}...", "x".repeat(500)));
    }
}
