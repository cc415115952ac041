//! A run that a future sees through to its end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::Watch;

use crate::drive::Stepwise;
use crate::error::Error;
use crate::output::Output;

/// A started run. Its end is the end of this future.
///
/// # Drop
/// Kills whoever has not ended: nobody is left who wants to know.
#[derive(Debug)]
pub(crate) struct Seeing {
    /// Before the run: it holds copies of its handles.
    watch: Watch,
    steps: Stepwise,
}

impl Seeing {
    pub(crate) fn new(steps: Stepwise) -> Seeing {
        Seeing { watch: Watch::default(), steps }
    }

    /// Stops the children, as a cancel does.
    pub(crate) fn stop(&mut self) {
        self.steps.stop();
    }

    /// Sends the children a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.steps.signal(signal);
    }
}

impl Future for Seeing {
    type Output = Result<Output, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Seeing { watch, steps } = &mut *self;
        steps.poll_output(cx, watch)
    }
}

impl Drop for Seeing {
    fn drop(&mut self) {
        self.steps.kill();
    }
}
