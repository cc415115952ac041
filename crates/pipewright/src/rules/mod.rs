//! The rules of a run as plain data: what a command or a pipeline says about it before it starts.

mod limit;

use std::time::{Duration, Instant};

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::base::signal::Signal;

use crate::cancel::CancelToken;
pub(crate) use limit::OnExceed;
pub use limit::{Limit, Linger};

/// The rules of a run: when and how it is stopped, and how long its streams are read.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) timeout: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) cancel: Option<CancelToken>,
    pub(crate) kill_grace: Duration,
    pub(crate) stop_signal: Signal,
    pub(crate) linger: Linger,
    /// Reads on a stream that was given up.
    pub(crate) linger_drain: Option<fn(PipeReader)>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            timeout: None,
            deadline: None,
            idle_timeout: None,
            cancel: None,
            kill_grace: Duration::from_secs(5),
            stop_signal: Signal::TERM,
            linger: Linger::default(),
            linger_drain: None,
        }
    }
}

impl Rules {
    /// Returns the stop signal: that of the cancel, if it came with one.
    pub(crate) fn effective_stop_signal(&self) -> Signal {
        self.cancel.as_ref().and_then(CancelToken::signal).unwrap_or(self.stop_signal)
    }

    /// Returns true if anything but the child itself can end the run.
    pub(crate) fn can_stop(&self) -> bool {
        self.timeout.is_some()
            || self.deadline.is_some()
            || self.idle_timeout.is_some()
            || self.cancel.is_some()
    }
}

/// Returns the earlier of two times, if there is one.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
