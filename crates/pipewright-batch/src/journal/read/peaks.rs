//! The memory that jobs have used.

use std::collections::HashMap;
use std::ops::ControlFlow;

use rusqlite::Row;

use super::Log;
use super::rows::unsigned;
use crate::job::JobId;
use crate::journal::LogError;

impl Log {
    /// Returns the largest amount of memory that an attempt of each job has used at one time, in bytes.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn peaks(&self) -> Result<HashMap<JobId, u64>, LogError> {
        let query = "SELECT jobs.identity, max(attempts.peak_rss_bytes) FROM attempts \
                     JOIN jobs ON jobs.id = attempts.job WHERE attempts.peak_rss_bytes IS NOT NULL \
                     GROUP BY attempts.job";
        let peak = |row: &Row<'_>| {
            let id = JobId::from_bytes(row.get(0)?);
            Ok((id, unsigned(row, 1)?.unwrap_or(0)))
        };
        let mut peaks = HashMap::new();
        self.for_each(query, [], peak, |(id, bytes)| {
            peaks.insert(id, bytes);
            ControlFlow::Continue(())
        })?;
        Ok(peaks)
    }
}
