//! A child that has just been started, and the parent's ends of its streams.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::process::status::Ended;

use super::foreground::ForegroundJob;
use super::process::Process;
use super::tee::TeeTarget;
use crate::input::Feed;

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
        process.wait_alone()
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
