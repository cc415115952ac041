//! The output of an attempt: counted, limited, written to its folder, and printed.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pipewright::Source;

use super::content::Content;
use super::error::{OutputError, OutputErrorKind};
use super::folder::Folder;
use super::node_files;
use super::options::{OutputMode, OutputOptions};
use super::shared::Shared;
use super::stream::Stream;
use super::tail::Tail;
use crate::executor::{NodeFiles, NodeOutput, OutputSink};

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
    on_node: OnNode,
    is_durable: bool,
    /// The first error.
    error: Option<OutputError>,
    is_truncated: bool,
}

/// The part of a node in the files of the folder.
#[derive(Debug, Default)]
enum OnNode {
    /// It writes none.
    #[default]
    Nothing,
    /// It may write them.
    May,
    /// It writes them, and has not told the numbers.
    Writes,
    /// It has written them. The last lines come from there.
    Wrote(String),
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
            on_node: match options.on_nodes && folder.is_some() {
                true => OnNode::May,
                false => OnNode::Nothing,
            },
            folder,
            is_durable: options.is_durable,
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
        let State { bytes, streams, tail, folder, on_node, error, is_truncated, .. } = &mut *state;
        streams.iter_mut().for_each(Stream::end);
        let on_node = mem::take(on_node);
        Finished {
            stdout_bytes: bytes[0],
            stderr_bytes: bytes[1],
            // A lost node may have written more than anybody knows.
            is_truncated: *is_truncated || matches!(on_node, OnNode::Writes),
            tail: match on_node {
                OnNode::Wrote(tail) => tail,
                _ => mem::take(tail).into_text(),
            },
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

impl State {
    fn node_files(&mut self) -> Option<NodeFiles> {
        let folder = self.folder.as_ref().filter(|_| matches!(self.on_node, OnNode::May))?;
        self.on_node = OnNode::Writes;
        let max_bytes = (self.max_bytes != u64::MAX).then_some(self.max_bytes);
        let folder = folder.path().to_owned();
        Some(NodeFiles { folder, max_bytes, is_durable: self.is_durable })
    }

    fn written(&mut self, output: NodeOutput) {
        let Some(folder) = self.folder.as_ref().filter(|_| matches!(self.on_node, OnNode::Writes))
        else {
            return;
        };
        self.is_truncated |= output.is_truncated;
        if let Err(error) = node_files::check(folder.path(), &output, self.max_bytes) {
            self.is_truncated = true;
            self.error.get_or_insert(error);
        }
        self.bytes = [output.stdout_bytes, output.stderr_bytes];
        // A node that lies sends no more than others.
        let mut tail = Tail::default();
        tail.push(Source::Stderr, output.tail.as_bytes());
        self.on_node = OnNode::Wrote(tail.into_text());
    }
}

struct Sink(AttemptOutput);

impl OutputSink for Sink {
    fn write(&mut self, stream: Source, bytes: &[u8]) {
        self.0.lock().write(stream, bytes);
    }

    fn is_live(&self) -> bool {
        self.0.lock().is_line_buffered
    }

    fn files(&self) -> usize {
        if self.0.lock().folder.is_some() { 2 } else { 0 }
    }

    fn node_files(&self) -> Option<NodeFiles> {
        self.0.lock().node_files()
    }

    fn written(&mut self, output: NodeOutput) {
        self.0.lock().written(output);
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}
