//! The exit status of a worker, for errors that say that it is gone.

#[cfg(feature = "tokio")]
use std::future::poll_fn;
use std::time::{Duration, Instant};

use pipewright::{Child, ExitStatus};
use pipewright_os::base::wait::{self, Slot};

use crate::error::{Error, ErrorKind};

/// The longest wait for the exit of a worker that has closed its end of the connection.
pub(crate) const EXIT_DEADLINE: Duration = Duration::from_secs(1);

/// Waits until the child exits or the deadline passes. Returns its exit status, if it has exited.
pub(crate) fn wait(child: &Child, until: Option<Instant>) -> Option<ExitStatus> {
    // Ignored, here and below: an unknown status is none.
    let _ = wait::any(&mut [Slot::Event(child.child_handle())], until);
    status(child)
}

/// Like [`wait()`], without blocking a thread.
#[cfg(feature = "tokio")]
pub(crate) async fn wait_async(child: &Child, until: Option<Instant>) -> Option<ExitStatus> {
    let (mut watch, mut slots) = (wait::Watch::default(), [Slot::Event(child.child_handle())]);
    let _ = poll_fn(|context| watch.poll_wait(context, &mut slots, until)).await;
    status(child)
}

fn status(child: &Child) -> Option<ExitStatus> {
    child.child_handle().try_wait().ok().flatten().map(|ended| ended.status)
}

/// Adds the exit status of the child to an error that says only that the other side is gone.
pub(crate) fn explain(error: Error, child: Option<&Child>, until: Option<Instant>) -> Error {
    match unexplained(&error, child) {
        Some(child) => with_status(error, wait(child, deadline(until))),
        None => error,
    }
}

/// Like [`explain`], without blocking a thread.
#[cfg(feature = "tokio")]
pub(crate) async fn explain_async(
    error: Error,
    child: Option<&Child>,
    until: Option<Instant>,
) -> Error {
    match unexplained(&error, child) {
        Some(child) => with_status(error, wait_async(child, deadline(until)).await),
        None => error,
    }
}

fn unexplained<'a>(error: &Error, child: Option<&'a Child>) -> Option<&'a Child> {
    child.filter(|_| matches!(error.kind(), ErrorKind::Died { status: None }))
}

fn with_status(error: Error, status: Option<ExitStatus>) -> Error {
    if status.is_some() { Error::new(ErrorKind::Died { status }) } else { error }
}

fn deadline(until: Option<Instant>) -> Option<Instant> {
    let exit = Instant::now().checked_add(EXIT_DEADLINE);
    [until, exit].into_iter().flatten().min()
}
