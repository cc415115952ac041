//! One step, taken by a task.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use pipewright_os::base::wait::{self, Watch};
use pipewright_os::process::child::ChildHandle;

use super::{Failed, Run};
use crate::command::Rules;
use crate::drive::{Reach, earlier};
use crate::output::Output;

impl Run {
    /// As [`step_until`](Self::step_until). `Pending`: nothing is out, all is as it was.
    pub(crate) fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
        until: Option<Instant>,
        exits: &[ChildHandle],
        rules: &Rules,
    ) -> Poll<Result<bool, Failed>> {
        let Some(mut wait) = self.before(exits, rules)? else { return Poll::Ready(Ok(false)) };
        match watch.poll_wait(cx, &mut wait.slots, earlier(wait.until, until)) {
            Poll::Ready(waited) => {
                let done = self.after(&mut wait.slots, waited.map(drop), exits, rules);
                Poll::Ready(done.map(|()| true))
            }
            Poll::Pending => {
                self.take_back(&mut wait.slots);
                Poll::Pending
            }
        }
    }

    /// Sees all children through to their ends. After an error they are killed, but for one: where no
    /// runtime drives the call they are left alone.
    ///
    /// Dropping the future gives up the streams, and nothing else.
    pub(crate) async fn see_through(
        mut self,
        exits: &[ChildHandle],
        rules: &Rules,
    ) -> Result<Output, Failed> {
        match self.go_on(exits, rules).await {
            Ok(()) => self.finish(exits),
            Err(failed) => {
                if wait::check_runtime().is_ok() {
                    // Ignored: another user's by now. They are not waited for: that holds up a task.
                    let _ = Reach::default().kill(exits);
                }
                Err(failed)
            }
        }
    }

    /// Waits until there is nothing left to wait for. After an error the children are as they were.
    async fn go_on(&mut self, exits: &[ChildHandle], rules: &Rules) -> Result<(), Failed> {
        self.go_on_until(None, exits, rules).await.map(drop)
    }

    /// The same, and waits no longer than until then. `false`: there is more to wait for.
    pub(crate) async fn go_on_until(
        &mut self,
        until: Option<Instant>,
        exits: &[ChildHandle],
        rules: &Rules,
    ) -> Result<bool, Failed> {
        // Dropped before the end is looked at: what is registered would keep a pipe open.
        let mut watch = Watch::default();
        poll_fn(|cx| {
            loop {
                if let Err(error) = wait::check_runtime() {
                    return Poll::Ready(Err(("wait for", error)));
                }
                match ready!(self.poll_step(cx, &mut watch, until, exits, rules)) {
                    Ok(true) if until.is_some_and(|until| Instant::now() >= until) => {
                        return Poll::Ready(Ok(false));
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
