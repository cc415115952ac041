//! The part of the output of a run that is kept.

use pipewright_os::base::pipe::PipeReader;

use super::sink::Sink;
use super::started::OutputEnd;
use crate::outcome::Source;
use crate::output::TAIL_BYTES;
use crate::rules::{Limit, OnExceed};

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
