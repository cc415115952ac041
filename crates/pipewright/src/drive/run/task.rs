//! One step, taken by a task.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use pipewright_os::exit::Exit;
use pipewright_os::mux::{self, Watch};

use super::{Failed, Run};
use crate::command::Rules;
use crate::drive::Reach;
use crate::output::Output;

impl Run {
    /// As [`step`](Self::step). `Pending`: nothing is out, all is as it was.
    pub(crate) fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        watch: &mut Watch,
        exits: &[Exit],
        rules: &Rules,
    ) -> Poll<Result<bool, Failed>> {
        let Some(mut wait) = self.before(exits, rules)? else { return Poll::Ready(Ok(false)) };
        match watch.poll_wait(cx, &mut wait.slots, wait.until) {
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
        exits: &[Exit],
        rules: &Rules,
    ) -> Result<Output, Failed> {
        match self.go_on(exits, rules).await {
            Ok(()) => self.finish(exits),
            Err(failed) => {
                if mux::check_runtime().is_ok() {
                    // Ignored: another user's by now. They are not waited for: that holds up a task.
                    let _ = Reach::default().kill(exits);
                }
                Err(failed)
            }
        }
    }

    /// As [`wait_through`](crate::drive::wait_through), and blocks no thread.
    pub(crate) async fn wait_through(
        mut self,
        exits: &[Exit],
        rules: &Rules,
    ) -> Result<Output, Failed> {
        let feeds = self.feeds();
        match self.go_on(exits, rules).await {
            Ok(()) => self.finish(exits),
            Err(failed) => {
                if feeds && mux::check_runtime().is_ok() {
                    // Ignored: another user's by now.
                    let _ = Reach::default().kill(exits);
                }
                Err(failed)
            }
        }
    }

    /// Waits until there is nothing left to wait for. After an error the children are as they were.
    pub(crate) async fn go_on(&mut self, exits: &[Exit], rules: &Rules) -> Result<(), Failed> {
        // Dropped before the end is looked at: what is registered would keep a pipe open.
        let mut watch = Watch::default();
        poll_fn(|cx| {
            loop {
                if let Err(error) = mux::check_runtime() {
                    return Poll::Ready(Err(("wait for", error)));
                }
                match ready!(self.poll_step(cx, &mut watch, exits, rules)) {
                    Ok(true) => {}
                    Ok(false) => return Poll::Ready(Ok(())),
                    Err(failed) => return Poll::Ready(Err(failed)),
                }
            }
        })
        .await
    }
}
