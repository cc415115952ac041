//! Waits and stops for tasks.

use std::time::Instant;

use super::{Owner, SpawnedRun};
use crate::error::Error;
use crate::run::suspended::StopRequest;
use crate::runtime::check_runtime_to_wait;

impl<P: Owner> SpawnedRun<P> {
    /// Waits as [`wait`](Self::wait) does, without blocking the thread.
    pub(crate) async fn wait_async(&self, until: Option<Instant>) -> Result<bool, Error> {
        let (children, rules) = (self.children(), &self.options.rules);
        let waited = self.suspended.wait_async(|| self.new_state(), children, rules, until).await;
        waited.map_err(|failed| self.failed(failed))
    }

    /// Stops as [`stop`](Self::stop) does, without blocking the thread. Does nothing but fail if no runtime drives the
    /// call.
    pub(crate) async fn stop_async(&self, how: StopRequest) -> Result<(), Error> {
        check_runtime_to_wait(&self.program)?;
        let (children, rules) = (self.children(), &self.options.rules);
        let stopped = self.suspended.stop_async(|| self.new_state(), children, rules, how).await;
        stopped.map_err(|failed| self.failed(failed))
    }
}
