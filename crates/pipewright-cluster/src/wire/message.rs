//! The messages of a connection, after its handshake.
//!
//! A message is the body of a frame, encoded by postcard: docs/wire-batch.md describes each field. What travels whole is itself a
//! message; both sides are the same program.

use std::time::Duration;

use pipewright_batch::{AttemptEnd, AttemptKey, JobStdin, LocalSettings, NodeFiles, NodeOutput};
use serde::{Deserialize, Serialize, Serializer};

use super::frame;
use crate::error::RemoteError;

/// A message to a worker.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// The rules of the batch. The first message.
    Settings(LocalSettings),
    /// Start this attempt.
    Start(Box<WireAttempt>),
    /// Stop this attempt.
    Stop(AttemptKey),
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
    Output(AttemptKey, Stream, #[serde(borrow, serialize_with = "bytes")] &'a [u8]),
    /// The end of an attempt. None of its processes is left.
    Ended(Box<Ended>),
    /// A message for the user.
    Note(String),
    /// A number that [`ToWorker::Seen`] has to name. Sent twice a second.
    Beat(u64),
    /// The node is asked to end: start nothing there.
    Draining(String),
    /// No process of an attempt is left, and the connection ends.
    Bye,
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

/// The bytes of a word or a path: those of `OsStr::as_encoded_bytes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Text(#[serde(serialize_with = "bytes")] pub(crate) Vec<u8>);

/// An attempt to start. Its output and its handles stay at the host.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireAttempt {
    pub(crate) key: AttemptKey,
    pub(crate) id: [u8; 16],
    pub(crate) slot: u32,
    pub(crate) argv: Vec<Text>,
    pub(crate) current_dir: Option<Text>,
    pub(crate) env: Vec<(Text, Option<Text>)>,
    pub(crate) stdin: JobStdin,
    pub(crate) timeout: Option<Duration>,
    pub(crate) memory_max_bytes: Option<u64>,
    /// Somebody watches the output: send it at once.
    pub(crate) is_live: bool,
    /// Write the output to these files, and send none.
    pub(crate) files: Option<NodeFiles>,
}

/// The end of an attempt, and what it has written to its files, if it had some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) end: AttemptEnd,
    pub(crate) written: Option<NodeOutput>,
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
