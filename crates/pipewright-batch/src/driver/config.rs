//! Settings of a driver.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use super::log::LogSettings;
use crate::job::JobId;
use crate::jobserver::JobserverMode;
use crate::output::OutputOptions;
use crate::scheduler;

/// Settings of a driver.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) scheduler: scheduler::Config,
    /// Attempts after the first one, for jobs that state none.
    pub(crate) retries: u32,
    /// The memory to reserve for jobs that name none, learned from earlier runs.
    pub(crate) learned_memory: Arc<HashMap<JobId, u64>>,
    /// The rule for jobs that state none: run at most once.
    pub(crate) once: bool,
    /// The timeout of a job that has none of its own.
    pub(crate) timeout: Option<Duration>,
    pub(crate) batch_timeout: Option<Duration>,
    pub(crate) log: Option<LogSettings>,
    pub(crate) output: OutputOptions,
    pub(crate) jobserver: JobserverMode,
    /// No process of an earlier run can be alive: nothing of it was real.
    pub(crate) is_alone: bool,
    /// Variables that every job has.
    pub(crate) env: Arc<[(OsString, OsString)]>,
}
