//! The same run, seen through by a task.

use std::io;

use pipewright_os::base::wait;
use pipewright_os::process::child::ChildHandle;

use super::ActiveRun;
use crate::error::Error;
use crate::output::Output;
use crate::run::stop_targets::StopTargets;

impl ActiveRun {
    /// As [`finish`](Self::finish), without blocking the thread.
    pub(crate) async fn finish_async(self) -> Result<Output, Error> {
        let decide = self.decide;
        self.finish_async_with(|children, output| super::decided(decide, children, output)).await
    }

    /// As [`finish_with`](Self::finish_with), without blocking the thread. After an error the children are killed; they
    /// are left alone if no runtime drives the call.
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
                if wait::check_runtime().is_ok() {
                    // Ignored: another user's by now. They are not waited for: that holds up a task.
                    let _ = StopTargets::default().kill(children);
                }
                Err(failed)
            }
        };
        super::concluded(&self.program, children, finished, conclude)
    }
}
