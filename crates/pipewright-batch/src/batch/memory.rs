//! The memory of jobs: for all together, and from the log of an earlier run.

use std::sync::Arc;

use super::Batch;
use crate::journal::LogError;
use crate::view::LogView;

impl Batch {
    /// Sets the memory for all jobs together, as far as they state [`mem_bytes`](crate::Job::mem_bytes) or it is
    /// [learned](Self::learn).
    pub fn memory_bytes(mut self, bytes: u64) -> Batch {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Reserves memory for jobs that state no [`mem_bytes`](crate::Job::mem_bytes): an eighth more than the most that the job with
    /// the same identity has used in that log. Such a job is not limited. A job that the log does not have reserves none.
    ///
    /// The log may be that of another batch, or the one that is resumed. It is read once, now.
    ///
    /// # Errors
    /// The log cannot be read.
    ///
    /// ```
    /// use pipewright_batch::{Batch, Job, LogView};
    /// # let dir = std::env::temp_dir().join(format!("batch-learn-doc-{}", std::process::id()));
    /// # std::fs::create_dir(&dir)?;
    /// # let monday = dir.join("monday.db");
    /// let jobs = || ["a", "b", "c"].map(|unit| Job::new("echo").arg(unit));
    /// Batch::new().log(&monday).run(jobs())?;
    /// Batch::new().learn(&LogView::open(&monday)?)?.run(jobs())?;
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn learn(mut self, log: &LogView) -> Result<Batch, LogError> {
        let mut peaks = log.peaks()?;
        for bytes in peaks.values_mut() {
            *bytes = bytes.saturating_add(*bytes / 8);
        }
        self.learned_memory = Arc::new(peaks);
        Ok(self)
    }
}
