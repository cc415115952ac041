//! The tokio runtime that a call with `_async` needs: feature `tokio`.

use std::ffi::OsStr;
use std::task::{Context, Poll, ready};

use pipewright_os::base::wait;
use tokio::task::coop;

use crate::error::{Doing, Error, ErrorKind};

/// Refuses a call that no tokio runtime drives, before it has done anything.
pub(crate) fn check_runtime(program: &OsStr, doing: Doing) -> Result<(), Error> {
    wait::check_runtime()
        .map_err(|error| Error::new(program, doing, ErrorKind::Unsupported, Some(error)))
}

/// The same for a call that waits for a child that runs.
pub(crate) fn check_runtime_to_wait(program: &OsStr) -> Result<(), Error> {
    check_runtime(program, Doing::Talk("wait for"))
}

/// Polls within the budget of the task, so that other tasks have their turn: a batch has thousands of lines, each of
/// which is ready at once.
pub(crate) fn poll_within_budget<T>(
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let turn = ready!(coop::poll_proceed(cx));
    let value = ready!(poll(cx));
    turn.made_progress();
    Poll::Ready(value)
}
