//! Settings of the log.

use std::path::PathBuf;

use super::Batch;
use crate::driver::LogSettings;
use crate::journal::RunFacts;

impl Batch {
    /// Keeps a log of the batch in this file, which must not exist: see `docs/batch-log.md`.
    ///
    /// The log is a SQLite database. It has each attempt before it starts, and each end, so that
    /// [`resume`](Self::resume) can continue the batch after any kind of end, also by SIGKILL or a power cut.
    ///
    /// ```
    /// use pipewright_batch::{Batch, Job};
    /// let dir = std::env::temp_dir().join(format!("batch-log-doc-{}", std::process::id()));
    /// std::fs::create_dir(&dir)?;
    /// let log = dir.join("run.db");
    /// let jobs = || ["true", "false"].map(Job::new);
    /// Batch::new().log(&log).run(jobs())?;
    /// // Nothing runs twice. What has failed can be run again.
    /// let again = Batch::new().log(&log).resume(true).retry_failed(true).run(jobs())?;
    /// assert_eq!((again.succeeded_before, again.failed), (1, 1));
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log(mut self, path: impl Into<PathBuf>) -> Batch {
        self.log_settings().path = path.into();
        self
    }

    /// Chooses whether to continue the batch of the log, which must exist then. Jobs that ended in an earlier run do not run
    /// again, whatever their place in the input. Jobs that were interrupted run again, except those that run at most
    /// [`once`](Self::once).
    ///
    /// Processes of an earlier run that are still alive are killed first.
    pub fn resume(mut self, resume: bool) -> Batch {
        self.log_settings().resume = resume;
        self
    }

    /// Chooses whether a resumed batch runs failed jobs again.
    pub fn retry_failed(mut self, retry: bool) -> Batch {
        self.log_settings().retry_failed = retry;
        self
    }

    /// Chooses whether a resumed batch runs jobs again that run at most once, and may have run.
    pub fn rerun_unknown(mut self, rerun: bool) -> Batch {
        self.log_settings().rerun_unknown = rerun;
        self
    }

    /// Describes the batch in its log, for people: the input and the command.
    pub fn describe(mut self, description: impl Into<String>) -> Batch {
        self.log_settings().facts.description = description.into();
        self
    }

    fn log_settings(&mut self) -> &mut LogSettings {
        self.log.get_or_insert_with(|| LogSettings {
            path: PathBuf::new(),
            resume: false,
            retry_failed: false,
            rerun_unknown: false,
            facts: RunFacts {
                description: String::new(),
                tool_version: env!("CARGO_PKG_VERSION").to_owned(),
                slots: 1,
            },
        })
    }
}
