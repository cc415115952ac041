//! The messages of a connection, after its handshake.
//!
//! A message is the body of a frame, encoded by postcard: docs/wire-batch.md describes each field.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::frame;
use crate::remote::error::RemoteError;

/// A message to a worker.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// The rules of the batch. The first message.
    Settings(Settings),
    /// Start this attempt.
    Start(Box<WireAttempt>),
    /// Stop this attempt.
    Stop(Key),
    /// The [`FromWorker::Beat`] of this number has arrived.
    Seen(u64),
    /// So many bytes of output have been taken, and so many more may be sent.
    Credit(u64),
    /// Kill everything and end: the batch is over.
    End,
}

/// A message from a worker.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum FromWorker<'a> {
    /// The node. The first message.
    About(About),
    /// Output of an attempt.
    Output(Key, Stream, #[serde(borrow, serialize_with = "bytes")] &'a [u8]),
    /// The end of an attempt. None of its processes is left.
    Ended(Box<WireEnd>),
    /// A message for the user.
    Note(String),
    /// A number that [`ToWorker::Seen`] has to name. Sent twice a second.
    Beat(u64),
    /// The node is asked to end: start nothing there.
    Draining(String),
    /// No process of an attempt is left, and the connection ends.
    Bye,
}

/// The key of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) job: u64,
    pub(crate) attempt: u32,
}

/// A stream of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) node: String,
    pub(crate) slots: u32,
}

/// The rules of the batch for all its attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Contain trees; otherwise process groups.
    pub(crate) tree: bool,
    pub(crate) stop_signal: i32,
    pub(crate) kill_grace: Duration,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) room_timeout: Duration,
}

/// The bytes of a word or a path: those of `OsStr::as_encoded_bytes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Text(#[serde(serialize_with = "bytes")] pub(crate) Vec<u8>);

/// An attempt to start.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireAttempt {
    pub(crate) key: Key,
    pub(crate) id: [u8; 16],
    pub(crate) slot: u32,
    pub(crate) argv: Vec<Text>,
    pub(crate) current_dir: Option<Text>,
    pub(crate) env: Vec<(Text, Option<Text>)>,
    pub(crate) stdin: WireStdin,
    pub(crate) timeout: Option<Duration>,
    pub(crate) memory_max_bytes: Option<u64>,
    /// Somebody watches the output: send it at once.
    pub(crate) is_live: bool,
    /// Write the output to these files, and send none.
    pub(crate) files: Option<WireFiles>,
}

/// The files of an attempt's output.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireFiles {
    pub(crate) folder: Text,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) is_durable: bool,
}

/// The facts about files that were written. The numbers of bytes are in the [`WireEnd`].
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireWritten {
    pub(crate) tail: String,
    pub(crate) is_truncated: bool,
    pub(crate) error: Option<String>,
}

/// The input of an attempt.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum WireStdin {
    Null,
    Bytes(#[serde(serialize_with = "bytes")] Vec<u8>),
    File(Text),
}

/// The end of an attempt.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireEnd {
    pub(crate) key: Key,
    pub(crate) outcome: WireOutcome,
    pub(crate) elapsed: Duration,
    pub(crate) user: Option<Duration>,
    pub(crate) system: Option<Duration>,
    pub(crate) peak_rss_bytes: Option<u64>,
    pub(crate) stdout_bytes: u64,
    pub(crate) stderr_bytes: u64,
    pub(crate) leftovers_killed: u32,
    /// Present if the attempt had files.
    pub(crate) written: Option<WireWritten>,
}

/// The result of an attempt.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum WireOutcome {
    Exited(i32),
    Signaled(i32),
    TimedOut,
    IdleTimedOut,
    LimitExceeded,
    Cancelled,
    OutOfMemory,
    NotStarted(String),
    Lost(String),
}

fn bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Appends the frame of a message.
///
/// # Errors
/// The message is too long. Nothing is appended then.
pub(crate) fn append(out: &mut Vec<u8>, message: &impl Serialize) -> Result<(), RemoteError> {
    frame::append(out, |out| {
        // `to_extend` takes and returns its buffer.
        *out = postcard::to_extend(message, std::mem::take(out))?;
        Ok::<(), postcard::Error>(())
    })
}

/// Returns the message of a frame.
///
/// # Errors
/// The body is not that of a message, or has bytes after it.
pub(crate) fn parse<'a, M: Deserialize<'a>>(body: &'a [u8]) -> Result<M, RemoteError> {
    match postcard::take_from_bytes(body)? {
        (message, []) => Ok(message),
        _ => Err(RemoteError::Garbled("bytes after its end")),
    }
}
