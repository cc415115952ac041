//! The errors of this crate: one line each, with facts.

use std::sync::Arc;
use std::{fmt, io};

use pipewright::{Child, ExitStatus, OutOfMemory};
use pipewright_os::base::error::OneLine;

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

    pub(crate) fn timed_out(waiting_for: &'static str, peer: Peer) -> Error {
        Error::new(ErrorKind::TimedOut { waiting_for, peer })
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
                // A program that a signal has killed may well be a worker program.
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

/// The kinds of failure, each with the facts that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The other side has closed the connection cleanly.
    Closed,
    /// The other side ended, or dropped its end of the connection, without a clean close. Everything that it sent
    /// before was received.
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
        /// The field that differs: `version`, `app`, `build`, `arch`, `user`, `salt`; or `shared memory`, which one
        /// side [requires](crate::SharedMemory::Required) and the connection does not have.
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
    /// the deadline (then [`Error::is_timeout`](crate::Error::is_timeout) is true). Perhaps the program is not a
    /// worker. No call was lost.
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
    /// The call has ended, and takes no more [items](crate::ItemSender). Its result has the reason.
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
    /// A running child of this process that has sent items, credit or a question for the call.
    Streams {
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
            Peer::Streams { pid } => {
                write!(f, "the worker (process {pid}) is running, and has not ended the call")
            }
            Peer::Stopped { pid } => write!(f, "the worker (process {pid}) is stopped"),
            Peer::Connected => f.write_str("the other side is connected and silent"),
            Peer::Nobody => f.write_str("none was available"),
        }
    }
}

// Texts of another process: the part of one that an error keeps, and the lines of a worker's stderr that explain its
// death.

/// The most bytes of a text from another process that an error keeps.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// Returns the beginning of a text, at most [`MAX_TEXT_BYTES`]. A text may be as long as the longest message.
pub(crate) fn beginning(text: &[u8]) -> String {
    // Four more bytes: a character at the cut is whole, and is then cut off as a whole.
    let near = text.get(..MAX_TEXT_BYTES + 4).unwrap_or(text);
    let mut kept = String::from_utf8_lossy(near).into_owned();
    let mut end = kept.len().min(MAX_TEXT_BYTES);
    while !kept.is_char_boundary(end) {
        end -= 1;
    }
    kept.truncate(end);
    kept.shrink_to_fit();
    kept
}

/// The beginning of a text on one line, with the length of the whole text if that is longer.
#[derive(Debug)]
pub(crate) struct PeerText<'a>(pub(crate) &'a str, pub(crate) usize);

impl fmt::Display for PeerText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerText(beginning, bytes) = self;
        // A cut text has at least 1,024 characters, so this ends with "...".
        write!(f, "{}", OneLine(beginning))?;
        if *bytes > MAX_TEXT_BYTES { write!(f, " ({bytes} bytes)") } else { Ok(()) }
    }
}

/// Returns the most informative lines: the last one; or, if a panic of Rust was the last event, its location and its
/// message.
fn summary(text: &str) -> impl Iterator<Item = &str> {
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let informative: Vec<&str> = lines().filter(|line| !is_backtrace(line)).collect();
    let ends_in_backtrace = lines().next_back().is_some_and(is_backtrace);
    let panic = informative.iter().rposition(|line| is_panic(line));
    let panic = panic.filter(|at| ends_in_backtrace || at + 2 == informative.len());
    let last = informative.last().copied().or_else(|| lines().next_back());
    let (place, said) = match panic {
        Some(at) => (informative.get(at).copied(), informative.get(at + 1).copied()),
        None => (None, last),
    };
    place.map(|place| place.trim_end_matches(':')).into_iter().chain(said)
}

/// Returns true for the first line of a panic. The next line is its message.
fn is_panic(line: &str) -> bool {
    line.starts_with("thread '") && line.contains(" panicked at ")
}

/// Returns true for lines that Rust writes after a panic, hints and the backtrace, and Node after an uncaught
/// exception: the frames and its version.
fn is_backtrace(line: &str) -> bool {
    let frame = line.trim_start();
    let number = frame.split(':').next().unwrap_or_default();
    let is_frame = frame != line
        && (frame.starts_with("at ")
            || !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit()));
    is_frame
        || line.starts_with("note: ")
        || line == "stack backtrace:"
        || line.starts_with("Node.js v")
}

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
        let words = "worker 7 closed its handle channel before the handshake, so it may not be a worker program";
        assert_eq!(silent.to_string(), format!(r"{words}: last\u{{7}}"));
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

    fn said(text: &str) -> Vec<&str> {
        summary(text).collect()
    }

    const PLACE: &str = "thread 'main' panicked at src/main.rs:2:5";

    #[test]
    fn panic_is_summarized_by_location_and_message() {
        for tail in [
            "",
            "\n  left: 1\n right: 2\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
            "\nstack backtrace:\n   0: __rustc::rust_begin_unwind\n             \
             at /rustc/1/library/std/src/panicking.rs:697:5\n  \
             12: main\nnote: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.",
        ] {
            let words = format!("before\n\n{PLACE}:\nno disk{tail}");
            assert_eq!(said(&words), [PLACE, "no disk"], "{words}");
        }
    }

    #[test]
    fn other_text_is_summarized_by_its_last_line() {
        assert_eq!(said("first\nlast\n"), ["last"]);
        assert_eq!(
            said(&format!("{PLACE}:\ncaught\nnote: hint\nanother end\nno disk")),
            ["no disk"]
        );
        assert_eq!(said("no disk\nnote: look at the log"), ["no disk"]);
        // Better than no line.
        assert_eq!(said("note: look at the log"), ["note: look at the log"]);
        assert_eq!(said("  7: a list of its own\nend: 7"), ["end: 7"]);
        assert!(said("\n").is_empty());
        // An uncaught exception of Node.
        let crash = "file:///worker.mjs:2\nthrow new Error('no disk')\n      ^\n\nError: no disk\n    \
             at file:///worker.mjs:2:9\n\nNode.js v20.20.2\n";
        assert_eq!(said(crash), ["Error: no disk"]);
        // Cut off before its message.
        assert_eq!(said(&format!("{PLACE}:")), [PLACE.to_owned() + ":"]);
    }
}
