//! A run that a task runs to its end.

use std::io;

use pipewright_os::base::wait;
use pipewright_os::process::child::ChildHandle;

use super::ActiveRun;
use crate::error::Error;
use crate::output::Output;
use crate::run::process::Children as _;
use crate::run::stop_targets::StopTargets;

impl ActiveRun {
    /// Runs as [`finish`](Self::finish) does, without blocking the thread.
    pub(crate) async fn finish_async(self) -> Result<Output, Error> {
        let decide = self.decide;
        self.finish_async_with(|children, output| super::decided(decide, children, output)).await
    }

    /// Runs as [`finish_with`](Self::finish_with) does, without blocking the thread. After an error the children are
    /// killed, except if no runtime drives the call.
    ///
    /// Dropping the future drops the run.
    pub(crate) async fn finish_async_with<T>(
        mut self,
        conclude: impl FnOnce(&[ChildHandle], Output) -> io::Result<T>,
    ) -> Result<T, Error> {
        let (children, rules) = (&self.processes, &self.options.rules);
        let finished = match self.state.run_until(None, children, rules).await {
            Ok(_) => self.state.finish(children),
            Err(failed) => {
                if wait::check_runtime().is_ok() && children.made_in().is_current() {
                    // Ignored: a child may have changed its user. Not waited for: that would block the task.
                    let _ = StopTargets::default().kill(children);
                }
                Err(failed)
            }
        };
        super::concluded(&self.program, children, finished, conclude)
    }
}
