//! The tokio runtime that an `_async` call needs: feature `tokio`.

use std::ffi::OsStr;
use std::task::{Context, Poll, ready};

use pipewright_os::base::wait;
use tokio::task::coop;

use crate::error::{Error, ErrorKind, FailedOperation};

/// Fails if no tokio runtime drives the call. Called before anything else is done.
pub(crate) fn check_runtime(program: &OsStr, operation: FailedOperation) -> Result<(), Error> {
    wait::check_runtime()
        .map_err(|error| Error::new(program, operation, ErrorKind::Unsupported, Some(error)))
}

/// Fails if no tokio runtime drives a call that waits for a running child.
pub(crate) fn check_runtime_to_wait(program: &OsStr) -> Result<(), Error> {
    check_runtime(program, FailedOperation::Child("wait for"))
}

/// Polls within the task's budget, so that other tasks get their turn: a batch may have thousands of lines that are all
/// ready at once.
pub(crate) fn poll_within_budget<T>(
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let turn = ready!(coop::poll_proceed(cx));
    let value = ready!(poll(cx));
    turn.made_progress();
    Poll::Ready(value)
}
