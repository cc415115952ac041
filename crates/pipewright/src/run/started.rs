//! A child that has just been started: the parent's ends of its streams and of its terminal, the part of the streams that is
//! kept, and the facts that no step of its run changes.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::generation::Generation;
use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::process::pty::{ChildTerminal, Pty};
use pipewright_os::process::status::Ended;

use super::foreground::ForegroundJob;
use super::process::OwnedProcess;
use super::stream::Sink;
use super::tee::TeeTarget;
use crate::input::{FedInput, Feed};
use crate::outcome::Source;
use crate::output::TAIL_BYTES;
use crate::rules::{Limit, OnExceed};
use crate::trace::Trace;

/// A started child.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) process: OwnedProcess,
    pub(crate) ends: ParentEnds,
    pub(crate) at: Instant,
    pub(crate) foreground: Option<Arc<dyn ForegroundJob>>,
}

/// The parent's ends of the streams of a child.
#[derive(Debug, Default)]
pub(crate) struct ParentEnds {
    /// For the caller to write to.
    pub(crate) stdin: Option<PipeWriter>,
    /// Input that the run writes.
    pub(crate) feed: Option<Feed>,
    pub(crate) stdout: Option<OutputEnd>,
    pub(crate) stderr: Option<OutputEnd>,
    /// The terminal of the child.
    pub(crate) terminal: Option<TerminalEnds>,
    /// True if the last child's stderr goes to its stdout.
    pub(crate) stderr_merged: bool,
}

impl Started {
    /// Waits for a child that needs nothing else. Closes its stdin first: a child that reads to the end of its input
    /// must find that end.
    pub(crate) fn wait(self) -> io::Result<Ended> {
        let Started { mut process, ends, .. } = self;
        drop(ends);
        process.wait_exclusive()
    }
}

impl ParentEnds {
    /// Returns true if a stream passes through this process.
    pub(crate) fn pass_data(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some() || self.feed.is_some()
    }
}

/// The parent's end of one output stream.
#[derive(Debug)]
pub(crate) struct OutputEnd {
    pub(crate) pipe: PipeReader,
    /// The target that gets a copy of everything.
    pub(crate) tee: Option<TeeTarget>,
}

impl OutputEnd {
    pub(crate) fn new(pipe: PipeReader, tee: Option<TeeTarget>) -> OutputEnd {
        OutputEnd { pipe, tee }
    }

    /// Separates the pipes from their tees.
    pub(crate) fn split(
        ends: [Option<OutputEnd>; 2],
    ) -> ([Option<PipeReader>; 2], [Option<TeeTarget>; 2]) {
        let [(out, out_tee), (err, err_tee)] =
            ends.map(|end| end.map_or((None, None), |end| (Some(end.pipe), end.tee)));
        ([out, err], [out_tee, err_tee])
    }
}

/// The part that is kept of the streams that pass through this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collect {
    All,
    /// The end of stderr, for an error.
    StderrTail,
    /// The end of each stream, for an error about a child whose stderr is its terminal.
    Tails,
    Nothing,
    /// Every chunk until the caller takes it.
    Chunks,
}

/// The streams of a run, stdout first, each with its sink.
pub(super) type Streams = [Option<(PipeReader, Sink)>; 2];

/// Creates the sink of each stream.
pub(super) fn streams(
    ends: [Option<OutputEnd>; 2],
    collect: Collect,
    limit: Option<Limit>,
) -> Streams {
    let [stdout, stderr] = ends;
    [
        stdout.map(|end| collect.stream(end, Source::Stdout, limit)),
        stderr.map(|end| collect.stream(end, Source::Stderr, limit)),
    ]
}

impl Collect {
    /// Returns the pipe, and its sink with its tee.
    // Not inlined: each copy adds to the program's size.
    #[inline(never)]
    fn stream(self, end: OutputEnd, source: Source, limit: Option<Limit>) -> (PipeReader, Sink) {
        let sink = self.sink(source, limit);
        let sink = match end.tee {
            Some(target) => sink.with_tee(target.open(source)),
            None => sink,
        };
        (end.pipe, sink)
    }

    fn sink(self, source: Source, limit: Option<Limit>) -> Sink {
        // `Limit::fail` stops the child even if nothing is kept.
        let fail = limit.filter(|limit| limit.on_exceed == OnExceed::Fail);
        match self {
            Collect::All => Sink::new(limit),
            Collect::StderrTail if source == Source::Stderr => {
                Sink::new(Some(fail.unwrap_or(Limit::keep_tail(TAIL_BYTES))))
            }
            Collect::Tails => Sink::new(Some(fail.unwrap_or(Limit::keep_tail(TAIL_BYTES)))),
            Collect::StderrTail | Collect::Nothing => Sink::discarding(fail),
            Collect::Chunks => Sink::for_chunks(limit),
        }
    }
}

/// The facts about a run apart from its children, its rules and its streams.
#[derive(Debug)]
pub(crate) struct RunInfo {
    pub(crate) started: Instant,
    /// The process that has started the children: not a fork of it.
    pub(crate) made_in: Generation,
    /// Input that is fed in the background.
    pub(crate) background_feed: Option<Box<dyn FedInput>>,
    pub(crate) foreground: Option<Arc<dyn ForegroundJob>>,
    pub(crate) stderr_merged: bool,
    pub(crate) terminal: HeldTerminal,
    pub(crate) trace: Trace,
}

/// The two sides of a terminal, until the start.
#[derive(Debug)]
pub(crate) struct TerminalEnds {
    pub(crate) pty: Pty,
    pub(crate) child_end: ChildTerminal,
}

/// The sides of the child's terminal that this process holds while the child runs.
#[derive(Debug, Default)]
pub(crate) struct HeldTerminal {
    /// This process's side: the terminal would hang up without it, even if nobody reads any more.
    pub(crate) pty: Option<Pty>,
    /// The child's side: the output cannot end before the child does. A child that closes the terminal, and opens it again
    /// (`/dev/tty`), would otherwise be lost in between.
    pub(crate) child_end: Option<ChildTerminal>,
}

impl HeldTerminal {
    /// Returns true if a side of a terminal is held.
    pub(crate) fn is_held(&self) -> bool {
        self.pty.is_some() || self.child_end.is_some()
    }
}
