//! A log that somebody has made to harm whoever reads it: queries without an end, and values without a measure.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::Connection;
use rusqlite::limits::Limit;

use crate::journal::{LogError, LogErrorKind};

/// The longest value that is read. A command that a system can start is shorter, also quoted.
const MOST_VALUE_BYTES: i32 = 64 << 20;

/// Steps of SQLite's machine between two looks at the bound.
const LOOK: i32 = 10_000;

/// The steps that a query may take, and those that it may take more for each page of the log. A page has fewer than a hundred rows
/// of any table, and a row takes fewer than a hundred steps.
const STEPS: i64 = 10_000_000;
const STEPS_A_PAGE: i64 = 20_000;

/// The bound of the work of a query.
#[derive(Debug)]
pub(super) struct Guard {
    left: Arc<AtomicI64>,
}

impl Guard {
    /// Refuses a log whose tables are not tables of it, and bounds all queries of the connection.
    pub(super) fn set(connection: &Connection, path: &Path) -> Result<Guard, LogError> {
        let guard = Guard { left: Arc::new(AtomicI64::new(STEPS)) };
        let left = Arc::clone(&guard.left);
        let is_over = move || left.fetch_sub(i64::from(LOOK), Ordering::Relaxed) < 0;
        let set = || -> rusqlite::Result<bool> {
            connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)?;
            connection.progress_handler(LOOK, Some(is_over))?;
            guard.begin(connection)?;
            has_plain_tables(connection)
        };
        match set() {
            Ok(true) => Ok(guard),
            Ok(false) => Err(LogError::new(path, LogErrorKind::Corrupt)),
            Err(error) => Err(LogError::sqlite(path, error)),
        }
    }

    /// Allows values of any length.
    #[expect(clippy::unused_self, reason = "it is about this guard")]
    pub(super) fn allow_long_values(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, i32::MAX).map(drop)
    }

    /// Allows the steps of another query.
    pub(super) fn begin(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.left.store(STEPS, Ordering::Relaxed);
        let pages =
            connection.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))?;
        self.left
            .store(STEPS.saturating_add(pages.saturating_mul(STEPS_A_PAGE)), Ordering::Relaxed);
        Ok(())
    }
}

/// Returns true if every table that is read is one, and not a view or a virtual table, and computes no column.
fn has_plain_tables(connection: &Connection) -> rusqlite::Result<bool> {
    const TABLES: [&str; 5] = ["batch", "runs", "jobs", "running", "attempts"];
    let query = "SELECT count(*) = 1 AND max(type = 'table' AND rootpage > 0) \
                 AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(?1) WHERE hidden <> 0) \
                 FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE";
    let mut query = connection.prepare(query)?;
    for table in TABLES {
        if !query.query_row([table], |row| row.get(0))? {
            return Ok(false);
        }
    }
    Ok(true)
}
