//! The output of an attempt: counted, limited, written to its folder, and printed.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pipewright::Source;

use super::content::Content;
use super::error::{OutputError, OutputErrorKind};
use super::folder::Folder;
use super::options::{OutputMode, OutputOptions};
use super::shared::Shared;
use super::stream::Stream;
use super::tail::Tail;
use crate::executor::OutputSink;

/// The output of an attempt, shared by its sink and by the driver.
#[derive(Debug, Clone)]
pub(super) struct AttemptOutput(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    max_bytes: u64,
    /// The numbers of bytes that the attempt wrote, stdout first.
    bytes: [u64; 2],
    streams: [Stream; 2],
    is_line_buffered: bool,
    tail: Tail,
    folder: Option<Folder>,
    /// The first error.
    error: Option<OutputError>,
    is_truncated: bool,
}

/// The output of an attempt that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) stdout_bytes: u64,
    pub(super) stderr_bytes: u64,
    pub(super) tail: String,
    pub(super) is_truncated: bool,
    pub(super) folder: Option<Folder>,
    pub(super) error: Option<OutputError>,
    /// The output that has not been printed, in order.
    pub(super) stored: Vec<(Source, Content)>,
}

impl AttemptOutput {
    pub(super) fn new(
        shared: &Shared,
        options: &OutputOptions,
        tag: &str,
        folder: Option<Result<Folder, OutputError>>,
    ) -> AttemptOutput {
        let (folder, error) = match folder.transpose() {
            Ok(folder) => (folder, None),
            Err(error) => (None, Some(error)),
        };
        AttemptOutput(Arc::new(Mutex::new(State {
            max_bytes: options.max_bytes.unwrap_or(u64::MAX),
            bytes: [0; 2],
            streams: [Source::Stdout, Source::Stderr]
                .map(|source| Stream::new(source, shared, options, tag)),
            is_line_buffered: options.mode == OutputMode::LineBuffer,
            tail: Tail::default(),
            folder,
            is_truncated: error.is_some(),
            error,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic the output is incomplete, and its parts are still in order.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sink that the executor calls.
    pub(super) fn sink(&self) -> Box<dyn OutputSink> {
        Box::new(Sink(self.clone()))
    }

    /// Prints the stored lines, and the later ones as they arrive.
    pub(super) fn go_live(&self) {
        self.lock().streams.iter_mut().for_each(Stream::go_live);
    }

    /// Ends the output. Bytes that a sink writes later are discarded.
    pub(super) fn finish(&self) -> Finished {
        let mut state = self.lock();
        let State { bytes, streams, tail, folder, error, is_truncated, .. } = &mut *state;
        streams.iter_mut().for_each(Stream::end);
        Finished {
            stdout_bytes: bytes[0],
            stderr_bytes: bytes[1],
            tail: mem::take(tail).into_text(),
            is_truncated: *is_truncated,
            folder: folder.take(),
            error: error.take(),
            stored: streams.iter_mut().flat_map(Stream::take_stored).collect(),
        }
    }
}

impl State {
    fn write(&mut self, source: Source, bytes: &[u8]) {
        let index = source as usize;
        self.tail.push(source, bytes);
        let room = self.max_bytes.saturating_sub(self.bytes[index]);
        self.bytes[index] += bytes.len() as u64;
        let kept = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        self.is_truncated |= kept < bytes.len();
        let Some(bytes) = bytes.get(..kept).filter(|bytes| !bytes.is_empty()) else { return };
        let written = self.folder.as_mut().map_or(Ok(()), |folder| folder.write(source, bytes));
        let printed = self.streams[index]
            .write(bytes)
            .map_err(|error| OutputError::new(OutputErrorKind::Spool(source), error));
        for error in [written, printed].into_iter().filter_map(Result::err) {
            self.is_truncated = true;
            self.error.get_or_insert(error);
        }
    }
}

/// The sink of an attempt.
struct Sink(AttemptOutput);

impl OutputSink for Sink {
    fn write(&mut self, stream: Source, bytes: &[u8]) {
        self.0.lock().write(stream, bytes);
    }

    fn is_live(&self) -> bool {
        self.0.lock().is_line_buffered
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}
