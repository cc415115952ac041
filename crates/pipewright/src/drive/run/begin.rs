//! What a run is about, beside its children and their rules.

use std::ffi::OsStr;
use std::sync::Arc;

use pipewright_os::base::pipe::PipeReader;

use super::Run;
use crate::child::Fed;
use crate::drive::stream::Stream;
use crate::drive::{Feed, Front, Sink};
use crate::trace::Trace;

impl Run {
    /// The same run, of a child that may be in front of the terminal.
    pub(crate) fn in_front(self, front: Option<Arc<dyn Front>>) -> Run {
        Run { front, ..self }
    }

    /// The same run, which has been parked, with what it is to feed and to read from now on.
    pub(crate) fn reading(
        self: Box<Run>,
        feed: Option<Feed>,
        streams: [Option<(PipeReader, Sink)>; 2],
    ) -> Run {
        // Each chunk is looked at as it comes: there may be one already.
        Run { feed, streams: streams.map(Stream::new), ..*self }
    }

    /// The same run, of that program.
    pub(crate) fn of(self, program: &OsStr) -> Run {
        Run { program: program.to_owned(), ..self }
    }

    /// The same run, of a child that is fed in the background.
    pub(crate) fn fed_by(self, fed: Option<Fed>) -> Run {
        Run { fed, ..self }
    }

    /// The same run, whose stops and end are recorded in these spans.
    pub(crate) fn traced(self, trace: Trace) -> Run {
        Run { trace, ..self }
    }
}
