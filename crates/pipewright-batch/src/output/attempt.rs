//! The output of an attempt: counted, limited, written to its folder, and printed; one of its streams, and its last
//! lines.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io, mem};

use pipewright::{HeadAndTail, Source, SpillFailed};

use super::content::{Content, Shared};
use super::folder::{self, Folder};
use super::options::{OutputError, OutputErrorKind, OutputMode, OutputOptions};
use super::tags::Tagger;
use crate::executor::{NodeFiles, NodeOutput, OutputSink};

/// The output of an attempt, shared by its sink and by the driver.
#[derive(Debug, Clone)]
pub(super) struct AttemptOutput(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    max_bytes: u64,
    /// The keepers of the start and the end of each stream, stdout first.
    ends: Option<Box<[HeadAndTail; 2]>>,
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

/// Returns the keepers of the start and the end of both streams.
fn ends(options: &OutputOptions, (head, tail): (usize, usize)) -> [HeadAndTail; 2] {
    [Source::Stdout, Source::Stderr].map(|source| {
        let mut ends = HeadAndTail::new(head, tail);
        if let Some(folder) = &options.spill_to {
            ends.spill_to(folder, source);
        }
        ends
    })
}

impl AttemptOutput {
    pub(super) fn new(
        shared: &Shared,
        options: &OutputOptions,
        (job, tag): (u64, &str),
        folder: Option<Result<Folder, OutputError>>,
    ) -> AttemptOutput {
        let (folder, error) = match folder.transpose() {
            Ok(folder) => (folder, None),
            Err(error) => (None, Some(error)),
        };
        AttemptOutput(Arc::new(Mutex::new(State {
            max_bytes: options.max_bytes.unwrap_or(u64::MAX),
            ends: options.head_and_tail.map(|sizes| Box::new(ends(options, sizes))),
            bytes: [0; 2],
            streams: [Source::Stdout, Source::Stderr]
                .map(|source| Stream::new(source, shared, options, (job, tag))),
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
        state.end_ends();
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
        let bytes = bytes.get(..kept).unwrap_or_default();
        match &mut self.ends {
            None => self.pass(source, bytes),
            Some(ends) => {
                ends[index].push(bytes);
                let lines = ends[index].take_start().to_vec();
                self.pass(source, &lines);
            }
        }
    }

    /// Passes on what the ends have kept until now.
    fn end_ends(&mut self) {
        let Some(ends) = self.ends.take() else { return };
        for (source, ends) in [Source::Stdout, Source::Stderr].into_iter().zip(*ends) {
            let kept = ends.finish();
            self.is_truncated |= kept.is_cut;
            if let Some(SpillFailed { path, error, .. }) = kept.spill_failed {
                let error = OutputError::new(OutputErrorKind::Folder(path), error);
                self.error.get_or_insert(error);
            }
            self.pass(source, &kept.bytes);
        }
    }

    /// Passes bytes on to the files and the streams.
    fn pass(&mut self, source: Source, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let written = self.folder.as_mut().map_or(Ok(()), |folder| folder.write(source, bytes));
        let printed = self.streams[source as usize]
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
        if let Err(error) = folder::check_node_files(folder.path(), &output, self.max_bytes) {
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

// One stream of an attempt: tagged, and stored or passed on line by line.

/// One stream of an attempt.
#[derive(Debug)]
pub(super) struct Stream {
    source: Source,
    shared: Shared,
    mode: OutputMode,
    tagger: Option<Tagger>,
    /// True if lines are printed as they arrive. False: it is not the turn of this job, or jobs are printed whole.
    is_live: bool,
    /// The output that is not printed yet. Line by line: the lines of a job that waits for its turn.
    stored: Content,
    /// Line by line: the line that has not ended.
    line: Content,
    /// True if the last byte is no line end.
    is_in_line: bool,
    /// True if no more bytes are taken: the rest is lost, or the attempt has ended.
    is_closed: bool,
}

impl Stream {
    pub(super) fn new(
        source: Source,
        shared: &Shared,
        options: &OutputOptions,
        (job, tag): (u64, &str),
    ) -> Stream {
        Stream {
            source,
            shared: shared.clone(),
            mode: options.mode,
            tagger: options.tag.then(|| Tagger::new(tag, job, options.tag_styles.of(source))),
            is_live: false,
            stored: shared.content(),
            line: shared.content(),
            is_in_line: false,
            is_closed: options.mode == OutputMode::Discard,
        }
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// The temporary file cannot take them. The rest of the stream is lost, and nothing more is taken.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_closed || self.shared.queue.discards(self.source) {
            return Ok(());
        }
        let mut tagger = self.tagger.take();
        let written = match &mut tagger {
            Some(tagger) => tagger.tag(bytes, |tagged| self.print(tagged)),
            None => self.print(bytes),
        };
        self.tagger = tagger;
        self.is_in_line = !bytes.ends_with(b"\n");
        if written.is_err() {
            // The line of another job must not follow the part of a line. The queue ends a line that it cuts.
            self.is_in_line = !self.is_live || !self.line.is_empty();
            self.end();
        }
        written
    }

    fn print(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.mode != OutputMode::LineBuffer {
            return self.stored.push(bytes);
        }
        let lines = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (lines, rest) = bytes.split_at_checked(lines).unwrap_or_default();
        if !lines.is_empty() {
            let line = (!self.line.is_empty())
                .then(|| mem::replace(&mut self.line, self.shared.content()));
            if self.is_live {
                self.shared.queue.push_lines(self.source, line, lines)?;
            } else {
                if let Some(mut line) = line {
                    self.stored.append(&mut line)?;
                }
                self.stored.push(lines)?;
            }
        }
        self.line.push(rest)
    }

    /// Prints the stored lines, and the later ones as they arrive.
    pub(super) fn go_live(&mut self) {
        if self.mode == OutputMode::LineBuffer && !mem::replace(&mut self.is_live, true) {
            let stored = mem::replace(&mut self.stored, self.shared.content());
            self.shared.queue.push(self.source, stored);
        }
    }

    /// Ends the last line if lines matter, and takes no more bytes.
    pub(super) fn end(&mut self) {
        if mem::replace(&mut self.is_closed, true) || !self.is_in_line {
            return;
        }
        if self.mode == OutputMode::LineBuffer {
            self.line.end_line();
            if self.is_live {
                let line = mem::replace(&mut self.line, self.shared.content());
                self.shared.queue.push(self.source, line);
            }
        } else if self.tagger.is_some() {
            self.stored.end_line();
        }
    }

    /// Takes what is stored, in order, as small as it can be.
    pub(super) fn take_stored(&mut self) -> impl Iterator<Item = (Source, Content)> {
        let source = self.source;
        let contents = [&mut self.stored, &mut self.line]
            .map(|content| mem::replace(content, self.shared.content()));
        let is_plentiful = self.shared.memory.is_plentiful();
        contents.into_iter().filter(|content| !content.is_empty()).map(move |mut content| {
            // An error is ignored: the content is complete, and stays in memory, where it is counted.
            let _ = content.finish(is_plentiful);
            (source, content)
        })
    }
}

// The last lines of an attempt's output, for reports.

/// The most bytes of the tail.
pub(super) const TAIL_BYTES: usize = 2 << 10;
/// The bytes that are kept for it: line ends do not count, and the byte before the tail tells if a line begins there.
const KEPT_BYTES: usize = TAIL_BYTES + 64;

/// Keeps the last bytes of stderr, and those of stdout while stderr is empty.
#[derive(Debug, Default)]
pub(super) struct Tail {
    stream: Option<Source>,
    last: Vec<u8>,
    /// True if bytes before `last` are gone.
    is_cut: bool,
}

impl Tail {
    pub(super) fn push(&mut self, stream: Source, bytes: &[u8]) {
        if self.stream == Some(Source::Stderr) && stream == Source::Stdout {
            return;
        }
        if self.stream.replace(stream) != Some(stream) {
            self.last.clear();
            self.is_cut = false;
        }
        let kept = bytes.get(bytes.len().saturating_sub(KEPT_BYTES)..).unwrap_or_default();
        if kept.len() < bytes.len() {
            self.last.clear();
            self.is_cut = true;
        }
        // Moving the bytes for each small piece would be slow, so half of the limit more is let in.
        if self.last.len() + kept.len() > KEPT_BYTES + TAIL_BYTES / 2 {
            let excess = (self.last.len() + kept.len()).saturating_sub(KEPT_BYTES);
            self.last.drain(..excess.min(self.last.len()));
            self.is_cut = true;
        }
        self.last.extend_from_slice(kept);
    }

    /// Returns the last lines. If not all of them fit, the first one is whole, except if it is the only one.
    pub(super) fn into_text(self) -> String {
        let mut last = &*self.last;
        let mut is_cut = self.is_cut;
        while let Some((b'\n' | b'\r', rest)) = last.split_last().map(|(end, rest)| (*end, rest)) {
            last = rest;
        }
        if last.len() > TAIL_BYTES {
            last = last.get(last.len() - TAIL_BYTES - 1..).unwrap_or_default();
            is_cut = true;
        }
        if is_cut {
            let begins = last.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            last = last.get(begins.unwrap_or(0)..).unwrap_or_default();
        }
        let text = String::from_utf8_lossy(last);
        // Replacement characters are longer than the bytes that they replace.
        let from = text.len().saturating_sub(TAIL_BYTES);
        let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.get(from..).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tail_tests {
    use super::*;

    fn tail(pieces: &[(Source, &[u8])]) -> String {
        let mut tail = Tail::default();
        pieces.iter().for_each(|(stream, bytes)| tail.push(*stream, bytes));
        tail.into_text()
    }

    #[test]
    fn stderr_is_preferred_to_stdout() {
        use Source::{Stderr, Stdout};
        assert_eq!(tail(&[]), "");
        assert_eq!(tail(&[(Stdout, b"out\n")]), "out");
        assert_eq!(tail(&[(Stdout, b"out\n"), (Stderr, b"err\r\n"), (Stdout, b"x")]), "err");
    }

    #[test]
    fn the_tail_is_the_same_for_any_chunk_size_and_begins_with_a_line() {
        let all: Vec<u8> = (0..2000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let whole = tail(&[(Source::Stdout, &all)]);
        assert!(whole.starts_with("line ") && whole.ends_with("line 1999"), "{whole}");
        assert!(whole.len() <= TAIL_BYTES && whole.len() > TAIL_BYTES - 20);
        for size in [1, 7, 100, 2047, 2048, 2049, 5000] {
            let pieces: Vec<_> = all.chunks(size).map(|piece| (Source::Stdout, piece)).collect();
            assert_eq!(tail(&pieces), whole, "{size}");
        }
    }

    #[test]
    fn a_line_that_begins_at_the_limit_is_whole() {
        let mut all = b"x".repeat(100);
        all.push(b'\n');
        all.extend(b"y".repeat(TAIL_BYTES));
        assert_eq!(tail(&[(Source::Stdout, &all)]), "y".repeat(TAIL_BYTES));
    }

    #[test]
    fn a_long_line_is_cut_and_bytes_that_are_no_text_are_replaced() {
        assert_eq!(tail(&[(Source::Stderr, &b"x".repeat(9999))]).len(), TAIL_BYTES);
        let text = tail(&[(Source::Stderr, &[0xff; 9999])]);
        assert!(text.len() <= TAIL_BYTES && text.chars().all(|one| one == '\u{fffd}'));
        assert!(text.len() > TAIL_BYTES - 3);
    }
}
