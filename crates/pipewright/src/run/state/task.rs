//! Steps for tasks.

use std::future::poll_fn;
use std::panic;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use pipewright_os::base::wait::{self, Watch};
use pipewright_os::process::child::ChildHandle;

use super::RunState;
use crate::error::OperationError;
use crate::rules::{Rules, earlier};

impl RunState {
    /// Polls [`step_until`](Self::step_until). `Pending` leaves the state unchanged.
    pub(crate) fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
        until: Option<Instant>,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Poll<Result<bool, OperationError>> {
        let Some(mut wait) = self.before(children, rules)? else { return Poll::Ready(Ok(false)) };
        match watch.poll_wait(cx, &mut wait.slots, earlier(wait.until, until)) {
            Poll::Ready(waited) => {
                let done = self.after(&mut wait.slots, waited.map(drop), children, rules);
                if let Some(payload) = self.take_panic() {
                    // A caller that catches the panic may poll again: nothing is registered.
                    cx.waker().wake_by_ref();
                    panic::resume_unwind(payload);
                }
                Poll::Ready(done.map(|()| true))
            }
            Poll::Pending => {
                self.take_back(&mut wait.slots);
                Poll::Pending
            }
        }
    }

    /// Waits until there is nothing left to wait for, but no longer than `until`. Returns false if there is more to wait
    /// for. An error does not affect the children.
    pub(crate) async fn run_until(
        &mut self,
        until: Option<Instant>,
        children: &[ChildHandle],
        rules: &Rules,
    ) -> Result<bool, OperationError> {
        // Dropped before the end is handled: its registrations would keep a pipe open.
        let mut watch = Watch::default();
        poll_fn(|cx| {
            loop {
                if let Err(error) = wait::check_runtime() {
                    return Poll::Ready(Err(("wait for", error)));
                }
                match ready!(self.poll_step(cx, &mut watch, until, children, rules)) {
                    Ok(true) if self.is_late(until) => {
                        // The runtime may not have looked at the child since it was registered.
                        self.note_ends_in_time(children, Instant::now())?;
                        if self.is_late(until) {
                            return Poll::Ready(Ok(false));
                        }
                    }
                    Ok(true) => {}
                    Ok(false) => return Poll::Ready(Ok(true)),
                    Err(failed) => return Poll::Ready(Err(failed)),
                }
            }
        })
        .await
    }
}
