//! A run as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::Watch;
use pipewright_os::process::child::ChildHandle;

use super::active::ActiveRun;
use super::steps::Steps;
use crate::error::Error;
use crate::output::Output;

/// Sees a run through to its end.
///
/// # Drop
/// Kills the children that have not ended: nobody is left to ask for the result.
#[derive(Debug)]
pub(crate) struct RunFuture {
    /// Before the run: it holds copies of its handles.
    watch: Watch,
    steps: Steps,
}

impl ActiveRun {
    /// Returns the same run as a future that kills the children if it is dropped.
    pub(crate) fn into_future(self) -> RunFuture {
        RunFuture::new(self.into_steps())
    }
}

impl RunFuture {
    fn new(steps: Steps) -> RunFuture {
        RunFuture { watch: Watch::default(), steps }
    }

    /// The children.
    pub(crate) fn children(&self) -> &[ChildHandle] {
        self.steps.children()
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

impl Future for RunFuture {
    type Output = Result<Output, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let RunFuture { watch, steps } = &mut *self;
        steps.poll_output(cx, watch)
    }
}

impl Drop for RunFuture {
    fn drop(&mut self) {
        self.steps.kill();
    }
}
