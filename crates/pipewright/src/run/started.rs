//! A child that has just been started, the parent's ends of its streams, and the part of them that is kept.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::process::status::Ended;

use super::foreground::ForegroundJob;
use super::process::Process;
use super::sink::Sink;
use super::tee::TeeTarget;
use crate::input::Feed;
use crate::outcome::Source;
use crate::output::TAIL_BYTES;
use crate::rules::{Limit, OnExceed};

/// A child that runs.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) process: Process,
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
}

impl Started {
    /// Waits for a child that nothing else has to be done for. Its stdin is closed first: a child that reads to the
    /// end of its input must find one.
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
    /// Gets a copy of everything that comes.
    pub(crate) tee: Option<TeeTarget>,
}

impl OutputEnd {
    pub(crate) fn new(pipe: PipeReader, tee: Option<TeeTarget>) -> OutputEnd {
        OutputEnd { pipe, tee }
    }

    /// Separates the pipes from what they are passed on to.
    pub(crate) fn split(
        ends: [Option<OutputEnd>; 2],
    ) -> ([Option<PipeReader>; 2], [Option<TeeTarget>; 2]) {
        let [(out, out_tee), (err, err_tee)] =
            ends.map(|end| end.map_or((None, None), |end| (Some(end.pipe), end.tee)));
        ([out, err], [out_tee, err_tee])
    }
}

/// The part of the streams that is kept, of those that pass through this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collect {
    All,
    /// The end of stderr, for an error.
    StderrTail,
    Nothing,
    /// Each chunk until the caller takes it.
    Chunks,
}

/// The streams of a run, stdout first: the pipe, and the sink for what it brings.
pub(super) type Streams = [Option<(PipeReader, Sink)>; 2];

/// Gives each stream the sink that keeps what is to be kept of it.
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
    /// Returns the pipe, and the sink that keeps what is to be kept and passes on what is to be passed on.
    // One copy: a program pays for each in its size.
    #[inline(never)]
    fn stream(self, end: OutputEnd, source: Source, limit: Option<Limit>) -> (PipeReader, Sink) {
        let sink = self.sink(source, limit);
        let sink = match end.tee {
            Some(target) => sink.passing_on(target.open(source)),
            None => sink,
        };
        (end.pipe, sink)
    }

    fn sink(self, source: Source, limit: Option<Limit>) -> Sink {
        // A limit that stops the child stops it whatever is kept.
        let fail = limit.filter(|limit| limit.on_exceed == OnExceed::Fail);
        match self {
            Collect::All => Sink::new(limit),
            Collect::StderrTail if source == Source::Stderr => {
                Sink::new(Some(fail.unwrap_or(Limit::keep_tail(TAIL_BYTES))))
            }
            Collect::StderrTail | Collect::Nothing => Sink::discarding(fail),
            Collect::Chunks => Sink::handing_out(limit),
        }
    }
}
