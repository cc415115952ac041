//! The errors of this crate: one line each, with facts.

mod kind;

use std::fmt;
use std::io;
use std::sync::Arc;

use pipewright::ExitStatus;
use pipewright_os::base::error::OneLine;

use crate::peer_text::{PeerText, beginning, summary};
pub use kind::{ErrorKind, Peer, Side};

/// An error of a channel or a pool.
///
/// Prints as one line. [`source`](std::error::Error::source) returns the system's error, if there was one.
pub struct Error(Box<ErrorFacts>);

struct ErrorFacts {
    kind: ErrorKind,
    /// The operation that the system refused.
    operation: Option<&'static str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// Operations that the system may [refuse](Error::cannot) in several places.
pub(crate) const WAIT: &str = "wait for the other side";
pub(crate) const WATCH_TOKEN: &str = "watch a cancel token";

impl Error {
    pub(crate) fn new(kind: ErrorKind) -> Error {
        Error(Box::new(ErrorFacts { kind, operation: None, source: None }))
    }

    pub(crate) fn caused(
        kind: ErrorKind,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error(Box::new(ErrorFacts { kind, operation: None, source: Some(source.into().into()) }))
    }

    /// Returns a function that adds the failed operation to a system error: "cannot ...".
    pub(crate) fn cannot(operation: &'static str) -> impl Fn(io::Error) -> Error {
        move |error| {
            let mut error = Error::from(error);
            error.0.operation = Some(operation);
            error
        }
    }

    /// Copies the error, for one more caller.
    pub(crate) fn share(&self) -> Error {
        let ErrorFacts { kind, operation, source } = &*self.0;
        Error(Box::new(ErrorFacts {
            kind: kind.clone(),
            operation: *operation,
            source: source.clone(),
        }))
    }

    /// Returns the error that a worker reported.
    pub(crate) fn failed(text: &[u8]) -> Error {
        Error::new(ErrorKind::Failed { message: beginning(text), bytes: text.len() })
    }

    /// Returns the error of something that the host declined for this reason.
    pub(crate) fn declined(reason: &[u8]) -> Error {
        Error::new(ErrorKind::Declined { message: beginning(reason), bytes: reason.len() })
    }

    /// Returns the error of a worker that ended, closed its handle channel, or was silent for too long during the
    /// handshake.
    pub(crate) fn no_handshake(
        (pid, status): (u32, Option<ExitStatus>),
        stderr_tail: String,
        timeout: Option<&Error>,
    ) -> Error {
        let mut error = Error::new(ErrorKind::NoHandshake { pid, status, stderr_tail });
        error.0.source = timeout.map(|timeout| Arc::new(timeout.share()) as _);
        error
    }

    #[cfg(feature = "serde")]
    pub(crate) fn codec(error: postcard::Error) -> Error {
        Error::caused(ErrorKind::Codec, error)
    }

    pub(crate) fn protocol(what: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Protocol { what: what.to_string() })
    }

    /// Returns the kind of the error, with its facts.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns true if a timeout expired.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match self.kind() {
            ErrorKind::TimedOut { .. } => true,
            // Only an expired deadline is stored as its source.
            ErrorKind::NoHandshake { .. } => self.0.source.is_some(),
            _ => false,
        }
    }

    /// Returns true if the other side is gone, after a clean close or without one.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        match self.kind() {
            ErrorKind::Closed | ErrorKind::Died { .. } => true,
            ErrorKind::NoHandshake { .. } => !self.is_timeout(),
            _ => false,
        }
    }

    /// Returns the kind of the `io::Error` that this error is converted to.
    fn io_kind(&self) -> io::ErrorKind {
        match self.kind() {
            _ if self.is_timeout() => io::ErrorKind::TimedOut,
            _ if self.is_disconnect() => io::ErrorKind::BrokenPipe,
            ErrorKind::Protocol { .. } | ErrorKind::Codec => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Error::caused(ErrorKind::Died { status: None }, error),
            // An invalid handle or memory object of the other side.
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

impl From<crate::ring::RingError> for Error {
    fn from(error: crate::ring::RingError) -> Error {
        Error::protocol(error)
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
                f.write_str("the other side is gone without closing the connection")
            }
            (ErrorKind::TimedOut { waiting_for, peer }, source) => {
                write!(f, "timed out waiting for {waiting_for}: {peer}")?;
                match source {
                    Some(reason) => write!(f, "; the last one failed to start: {reason}"),
                    None => Ok(()),
                }
            }
            (ErrorKind::Cancelled, _) => f.write_str("cancelled"),
            (ErrorKind::Refused { by, field, host, worker }, _) => write!(
                f,
                "the {by} refused the connection: {} differs (host \"{}\", worker \"{}\")",
                OneLine(field),
                OneLine(host),
                OneLine(worker)
            ),
            (ErrorKind::Protocol { what }, _) => {
                write!(f, "the other side violated the protocol: {what}")
            }
            (ErrorKind::TooLong { bytes, most }, _) => {
                write!(f, "a message of {bytes} bytes exceeds the agreed maximum of {most}")
            }
            (ErrorKind::Backlog { most }, _) => write!(
                f,
                "backlog full: the other side does not read, and has sent more than {most} bytes"
            ),
            (ErrorKind::CutOff, _) => f.write_str("an earlier message was cut off: open a new channel"),
            (ErrorKind::Start, Some(source)) => write!(f, "cannot start the worker: {source}"),
            (ErrorKind::Start, None) => f.write_str("this process was not started as a worker"),
            (ErrorKind::Unclaimed, _) => f.write_str(
                "this process is a worker and has not claimed its handle channel, so it cannot start workers: \
                 call worker::serve first if worker::is_worker() is true",
            ),
            (ErrorKind::NoHandshake { pid, status, stderr_tail }, source) => {
                match (source, status) {
                    (Some(timeout), _) => write!(f, "{timeout}")?,
                    (None, Some(_)) => write!(f, "worker {pid} ended before the handshake")?,
                    (None, None) => write!(f, "worker {pid} closed its handle channel before the handshake")?,
                }
                // A signal says nothing about the program.
                if status.is_none_or(|status| status.code().is_some()) {
                    f.write_str(", so it may not be a worker program")?;
                }
                if let Some(status) = status {
                    write!(f, ": {status}")?;
                }
                summary(stderr_tail).try_for_each(|line| write!(f, ": {}", OneLine(line)))
            }
            (ErrorKind::Lost { pid, status, stderr_tail, attempts, out_of_memory }, source) => {
                write!(f, "worker {pid} ended during the call")?;
                if *attempts > 1 {
                    write!(f, " (attempt {attempts})")?;
                }
                match (status, source) {
                    (Some(status), None) => write!(f, ": {status}")?,
                    (Some(status), Some(source)) => write!(f, ": {source} ({status})")?,
                    (None, Some(source)) => write!(f, ": {source}")?,
                    (None, None) => {}
                }
                if let Some(lack) = out_of_memory {
                    return write!(f, ": {lack}");
                }
                summary(stderr_tail).try_for_each(|line| write!(f, ": {}", OneLine(line)))
            }
            (ErrorKind::Failed { message, bytes }, _) => {
                write!(f, "the worker failed: {}", PeerText(message, *bytes))
            }
            (ErrorKind::Declined { message, bytes }, _) => {
                write!(f, "the host declined: {}", PeerText(message, *bytes))
            }
            (ErrorKind::Unsupported { capability }, _) => {
                write!(f, "the worker does not support this call: its library lacks {capability}")
            }
            (ErrorKind::CallEnded, _) => f.write_str("the call has ended, and takes no more items"),
            (ErrorKind::Full { most }, _) => {
                write!(f, "queue full: {most} calls are already waiting")
            }
            (ErrorKind::ShutDown, _) => f.write_str("the pool is shut down"),
            (ErrorKind::Codec, Some(source)) => write!(f, "cannot (de)serialize the message: {source}"),
            (ErrorKind::Codec, None) => f.write_str("cannot (de)serialize the message"),
            (ErrorKind::Io, Some(source)) => {
                let operation = self.0.operation.unwrap_or("communicate with the other side");
                write!(f, "cannot {operation}: {source}")
            }
            (ErrorKind::Io, None) => f.write_str("unsupported"),
        }
    }
}

pipewright_os::impl_error!(Error);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_other_processes_is_one_line_without_control_characters() {
        let said = "\u{1b}[31mno\tdisk\r\nat all\n".to_owned();
        let words = r"\u{1b}[31mno\tdisk\r\nat all";
        let failed = Error::failed(said.as_bytes());
        assert_eq!(failed.to_string(), format!("the worker failed: {words}"));
        // The error keeps a short text as it is.
        let bytes = said.len();
        assert_eq!(*failed.kind(), ErrorKind::Failed { message: said.clone(), bytes });
        let declined = Error::declined(said.as_bytes());
        assert_eq!(declined.to_string(), format!("the host declined: {words}"));
        let stderr_tail = "first\nlast\u{7}".to_owned();
        let lost = |attempts| {
            let stderr_tail = stderr_tail.clone();
            let out_of_memory = None;
            let kind =
                ErrorKind::Lost { pid: 7, status: None, stderr_tail, attempts, out_of_memory };
            Error::new(kind).to_string()
        };
        assert_eq!(lost(1), r"worker 7 ended during the call: last\u{7}");
        assert_eq!(lost(3), r"worker 7 ended during the call (attempt 3): last\u{7}");
        let silent = Error::new(ErrorKind::NoHandshake { pid: 7, status: None, stderr_tail });
        let words = r"worker 7 closed its handle channel before the handshake, so it may not be a worker program: last\u{7}";
        assert_eq!(silent.to_string(), words);
        // The line is bounded.
        let long = Error::failed("x".repeat(10_000).as_bytes()).to_string();
        assert_eq!(long, format!("the worker failed: {}... (10000 bytes)", "x".repeat(500)));
    }

    #[test]
    fn a_long_text_of_other_processes_is_not_kept() {
        // Cut between characters: 4096 is no multiple of 3.
        let long = "\u{20ac}".repeat(2_500_000);
        for error in [Error::failed(long.as_bytes()), Error::declined(long.as_bytes())] {
            let (ErrorKind::Failed { message, bytes } | ErrorKind::Declined { message, bytes }) =
                error.kind()
            else {
                panic!("{error}")
            };
            assert_eq!((message.len(), *bytes), (4_095, 7_500_000));
            assert!(message.chars().all(|it| it == '\u{20ac}'));
            assert!(error.to_string().ends_with("... (7500000 bytes)"), "{error}");
            assert!(format!("{error:?}").len() < 20_000);
        }
        // A replaced byte takes three.
        let noise = Error::failed(&[0xff; 7_000_000]);
        let ErrorKind::Failed { message, bytes } = noise.kind() else { panic!("{noise}") };
        assert_eq!((message.len(), *bytes), (4_095, 7_000_000));
        let ErrorKind::Failed { message, .. } = Error::failed(b"a\xff").kind().clone() else {
            panic!()
        };
        assert_eq!(message, "a\u{fffd}");
    }

    #[test]
    fn fields_of_a_rejection_are_bounded_and_without_control_characters() {
        // A rejection is written by the other side, which may be hostile.
        let refused = |field: &str, host: &str| {
            let (field, host, worker) = (field.to_owned(), host.to_owned(), "\u{7}".to_owned());
            Error::new(ErrorKind::Refused { by: Side::Worker, field, host, worker }).to_string()
        };
        assert_eq!(
            refused("\u{1b}[31mapp", "a\rb"),
            r#"the worker refused the connection: \u{1b}[31mapp differs (host "a\rb", worker "\u{7}")"#
        );
        let long = "x".repeat(2_000);
        assert!(refused(&long, &long).len() < 1_200);
    }
}
