//! The storage behind the log, as the writer sees it.

use super::changes::Changes;
use super::error::LogError;

/// The storage behind the log.
pub(crate) trait Store {
    /// Writes all changes in one transaction, and returns when they are durable.
    ///
    /// # Errors
    /// Nothing was written, or everything was and that is not certain. The caller repeats the call with the same changes.
    fn commit(&mut self, changes: &Changes) -> Result<(), LogError>;
}
