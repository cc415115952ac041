//! The protocol between a batch (the *host*) and a worker on a node: docs/wire-batch.md. `hello.rs` has the handshake;
//! here are the messages after it, their frames, and attempts as messages, without what does not travel.
//!
//! A message is the body of a frame, encoded by postcard. What travels whole is itself a message; both sides are the
//! same program.

pub(crate) mod hello;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::time::{Duration, SystemTime};

use pipewright_batch::{
    Attempt, AttemptEnd, AttemptKey, AttemptOutcome, JobId, JobStdin, LocalSettings, NodeFiles,
    NodeOutput, OutputSink,
};
use pipewright_os::base::os_text::from_encoded_bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    /// This many bytes of output have been taken, so this many more may be sent.
    Credit(u64),
    /// Kill everything and end: the batch is over.
    End,
    /// Begin this attempt, which has been [`FromWorker::Placed`].
    Begin(AttemptKey),
    /// The file that follows gets this path.
    Path(Text),
    /// A part of a file for the path that was named last.
    File(FilePart),
    /// All files of an attempt have been sent: tell if they are [`FromWorker::Stored`].
    StoreAll,
    /// Send these files, in order.
    Fetch(Vec<Text>),
    /// This many more bytes of files may be sent.
    FileCredit(u64),
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
    /// An attempt that must be noted before it begins has not begun, and waits for room.
    Displaced(AttemptKey),
    /// There is room for it, and it waits for [`ToWorker::Begin`].
    Placed(AttemptKey),
    /// A part of the first file of [`ToWorker::Fetch`] that has not ended.
    File(FilePart),
    /// The files before [`ToWorker::StoreAll`] are there, or the reason why one is not.
    Stored(Option<String>),
    /// This many more bytes of files may be sent.
    FileCredit(u64),
}

/// A part of a file. Each file ends; one that cannot be read does not begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FilePart {
    /// Its first part: its rights.
    Begin(u32),
    Bytes(#[serde(serialize_with = "bytes", deserialize_with = "byte_buf")] Vec<u8>),
    /// It is whole, or the reason why it is not.
    End(Option<String>),
}

impl FilePart {
    /// Bounds what the node has written.
    pub(crate) fn map_reason(self, bounded: impl Fn(String) -> String) -> FilePart {
        match self {
            FilePart::End(reason) => FilePart::End(reason.map(bounded)),
            part => part,
        }
    }

    /// Returns the bytes that it takes of the credit: those that it holds in memory until it is stored.
    pub(crate) fn cost(&self) -> u64 {
        /// A part itself, and its frame.
        const FIXED: u64 = 256;
        FIXED
            + match self {
                FilePart::Begin(_) | FilePart::End(None) => 0,
                FilePart::Bytes(bytes) => bytes.len() as u64,
                FilePart::End(Some(reason)) => reason.len() as u64,
            }
    }
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
    argv: Vec<Text>,
    pub(crate) current_dir: Option<Text>,
    pub(crate) env: Vec<(Text, Option<Text>)>,
    pub(crate) stdin: JobStdin,
    pub(crate) timeout: Option<Duration>,
    /// It must be noted before it begins.
    pub(crate) once: bool,
    memory_max_bytes: Option<u64>,
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

/// Takes bytes as a whole: a `Vec` takes them one by one.
fn byte_buf<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    <&'de [u8]>::deserialize(deserializer).map(<[u8]>::to_vec)
}

/// Appends the frame of a message.
///
/// # Errors
/// The message is too long. Nothing is appended then.
pub(crate) fn append(out: &mut Vec<u8>, message: &impl Serialize) -> Result<(), RemoteError> {
    append_frame(out, |out| {
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

/// The longest body. The arguments of a command have at most 6 MiB on Linux; its input may be longer.
const MOST_BODY_BYTES: usize = 256 << 20;

const HEADER_BYTES: usize = 4;

/// The least room for a read.
const READ_BYTES: usize = 128 << 10;

/// Appends a frame whose body is written by `body`.
///
/// # Errors
/// The body is too long. Nothing is appended then.
fn append_frame<E>(
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), RemoteError>
where
    RemoteError: From<E>,
{
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let written = body(out).map_err(RemoteError::from).and_then(|()| {
        let length = out.len() - start - HEADER_BYTES;
        match u32::try_from(length) {
            Ok(header) if length <= MOST_BODY_BYTES => Ok(header),
            _ => Err(RemoteError::TooLong { bytes: length as u64 }),
        }
    });
    match written {
        Ok(header) => {
            out[start..start + HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// Splits the bytes of a stream into frames. Takes memory as bytes arrive, whatever a header promises.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    /// The range of the buffer that holds bytes which have not been returned.
    start: usize,
    end: usize,
}

impl Frames {
    /// Reads some bytes. Returns false at the end of the stream.
    ///
    /// # Errors
    /// The errors of the read.
    pub(crate) fn fill(&mut self, reader: &mut impl Read) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() - self.end < READ_BYTES / 2 {
            // Doubled, so that a long frame is copied a few times only.
            let more = self.buffer.len().max(READ_BYTES);
            self.buffer.try_reserve(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.buffer.resize(self.buffer.len() + more, 0);
        }
        loop {
            match reader.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the body of the next frame, if it has arrived.
    ///
    /// # Errors
    /// The header promises too many bytes.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, RemoteError> {
        let bytes = &self.buffer[self.start..self.end];
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header) as usize;
        if length > MOST_BODY_BYTES {
            return Err(RemoteError::TooLong { bytes: length as u64 });
        }
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.start + HEADER_BYTES;
        self.start = from + length;
        Ok(Some(&self.buffer[from..from + length]))
    }

    /// Returns true if bytes have arrived that are no whole frame.
    pub(crate) fn is_in_frame(&self) -> bool {
        self.start < self.end
    }
}

/// The last lines of an output are no more, and those of a node that lies are not shown.
const MOST_TAIL_BYTES: usize = 16 << 10;

impl Text {
    pub(crate) fn of(text: impl AsRef<OsStr>) -> Text {
        Text(text.as_ref().as_encoded_bytes().to_vec())
    }

    pub(crate) fn into_os(self) -> Result<OsString, RemoteError> {
        from_encoded_bytes(self.0).map_err(|_| RemoteError::Garbled("its text"))
    }
}

/// Returns the message of an attempt, in that slot of the node.
pub(crate) fn wire_attempt(attempt: &Attempt, slot: u32) -> WireAttempt {
    let env = attempt.env.iter();
    WireAttempt {
        key: attempt.key,
        id: attempt.id.to_bytes(),
        slot,
        argv: attempt.argv.iter().map(Text::of).collect(),
        current_dir: attempt.current_dir.as_ref().map(Text::of),
        env: env.map(|(name, value)| (Text::of(name), value.as_ref().map(Text::of))).collect(),
        stdin: attempt.stdin.clone(),
        timeout: attempt.timeout,
        once: attempt.once,
        memory_max_bytes: attempt.memory_max_bytes,
        is_live: attempt.output.as_ref().is_some_and(|output| output.is_live()),
        files: attempt.output.as_ref().and_then(|output| output.node_files()),
    }
}

/// Returns the attempt of a message, with that receiver of its output.
///
/// # Errors
/// A text has bytes that no text of this system has.
pub(crate) fn attempt_of(
    wire: WireAttempt,
    output: Box<dyn OutputSink>,
) -> Result<Attempt, RemoteError> {
    let argv = wire.argv.into_iter().map(Text::into_os).collect::<Result<_, _>>()?;
    let env = wire.env.into_iter().map(|(name, value)| {
        Ok::<_, RemoteError>((name.into_os()?, value.map(Text::into_os).transpose()?))
    });
    let mut attempt = Attempt::new(wire.key, JobId::from_bytes(wire.id), argv);
    attempt.slot = wire.slot;
    attempt.current_dir = wire.current_dir.map(Text::into_os).transpose()?.map(Into::into);
    attempt.env = env.collect::<Result<_, _>>()?;
    attempt.stdin = wire.stdin;
    attempt.timeout = wire.timeout;
    attempt.once = wire.once;
    attempt.memory_max_bytes = wire.memory_max_bytes;
    attempt.output = Some(output);
    Ok(attempt)
}

impl Ended {
    /// Returns the message of an end, with the facts about its files if it had some.
    pub(crate) fn new(mut end: AttemptEnd, written: Option<NodeOutput>) -> Ended {
        if let Some(files) = &written {
            (end.stdout_bytes, end.stderr_bytes) = (files.stdout_bytes, files.stderr_bytes);
        }
        Ended { end, written }
    }

    /// Bounds each text that the node has written. The last lines of the output are bounded where they are shown.
    pub(crate) fn bound_texts(&mut self, bounded: impl Fn(String) -> String) {
        let bound = |text: &mut String| *text = bounded(std::mem::take(text));
        if let AttemptOutcome::NotStarted(reason) | AttemptOutcome::Lost(reason) =
            &mut self.end.outcome
        {
            bound(reason);
        }
        // The host knows it.
        self.end.node = None;
        if let Some(written) = &mut self.written {
            written.error.iter_mut().for_each(bound);
            if written.tail.len() > MOST_TAIL_BYTES {
                written.tail = String::new();
            }
        }
    }

    /// Returns the end, which arrives now from that node, and the facts about its files. Its start is told by the clock
    /// of this machine. A job that was not started has written nothing.
    pub(crate) fn arrived(self, node: &str) -> (AttemptEnd, Option<NodeOutput>) {
        let Ended { mut end, mut written } = self;
        if let AttemptOutcome::NotStarted(reason) | AttemptOutcome::Lost(reason) = &mut end.outcome
        {
            *reason = format!("node {node}: {reason}");
        }
        if let AttemptOutcome::NotStarted(_) = end.outcome {
            written.get_or_insert_default();
        }
        let now = SystemTime::now();
        end.started = now.checked_sub(end.elapsed).unwrap_or(now);
        end.node = Some(node.to_owned());
        (end, written)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for body in bodies {
            append_frame::<RemoteError>(&mut out, |out| {
                out.extend_from_slice(body);
                Ok(())
            })
            .unwrap();
        }
        out
    }

    /// Returns at most this many bytes a read.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            let (piece, rest) = self.0.split_at(count);
            buffer[..count].copy_from_slice(piece);
            self.0 = rest;
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn frames_are_read_back_whatever_the_pieces(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            piece in 1_usize..700,
        ) {
            let bytes = framed(&bodies);
            let (mut frames, mut pieces) = (Frames::default(), Pieces(&bytes, piece));
            let mut read = Vec::new();
            loop {
                while let Some(body) = frames.next().unwrap() {
                    read.push(body.to_vec());
                }
                if !frames.fill(&mut pieces).unwrap() {
                    break;
                }
            }
            prop_assert!(!frames.is_in_frame());
            prop_assert_eq!(read, bodies);
        }
    }

    #[test]
    fn a_header_that_promises_much_takes_no_memory() {
        let mut frames = Frames::default();
        let mut bytes = (MOST_BODY_BYTES as u32).to_le_bytes().to_vec();
        bytes.push(1);
        frames.fill(&mut &bytes[..]).unwrap();
        assert_eq!(frames.next().unwrap(), None);
        assert!(frames.is_in_frame() && frames.buffer.capacity() <= 4 * READ_BYTES);
    }

    #[test]
    fn a_longer_frame_than_allowed_is_refused() {
        let mut frames = Frames::default();
        frames.fill(&mut &u32::MAX.to_le_bytes()[..]).unwrap();
        assert!(matches!(frames.next(), Err(RemoteError::TooLong { bytes: 0xffff_ffff })));
    }
}
