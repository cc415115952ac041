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

/// A future that runs children to their ends.
///
/// # Drop
/// Kills the children that still run: nobody is left to ask for the result.
#[derive(Debug)]
pub(crate) struct RunFuture {
    /// Dropped before the run, because it holds copies of its handles.
    watch: Watch,
    steps: Steps,
}

impl ActiveRun {
    /// Converts the run to a future that kills the children if it is dropped.
    pub(crate) fn into_future(self) -> RunFuture {
        RunFuture::new(self.into_steps())
    }
}

impl RunFuture {
    fn new(steps: Steps) -> RunFuture {
        RunFuture { watch: Watch::default(), steps }
    }

    /// Returns the children.
    pub(crate) fn children(&self) -> &[ChildHandle] {
        self.steps.children()
    }

    /// Stops the children, as a cancel does.
    pub(crate) fn stop(&mut self) {
        self.steps.stop();
    }

    /// Sends a signal to the children.
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
