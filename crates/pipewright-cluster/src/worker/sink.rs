//! The output of an attempt, on its way to the host.

use std::sync::Arc;

use pipewright::Source;
use pipewright_batch::{AttemptKey, OutputSink};

use crate::outbox::Outbox;
use crate::wire::Stream;

/// Sends output to the host. Waits while the host is behind: then the jobs of this node wait for their readers, as they would at a
/// full pipe. Beats go on.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) outbox: Arc<Outbox>,
    pub(super) key: AttemptKey,
    pub(super) is_live: bool,
}

impl OutputSink for Sink {
    fn write(&mut self, stream: Source, bytes: &[u8]) {
        let stream = match stream {
            Source::Stderr => Stream::Stderr,
            _ => Stream::Stdout,
        };
        self.outbox.send_output(self.key, stream, bytes);
    }

    fn is_live(&self) -> bool {
        self.is_live
    }
}
