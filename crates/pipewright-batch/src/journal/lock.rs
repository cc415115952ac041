//! The lock that a runner holds on a log.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::LogError;

/// The time for runners that start at once to agree on one: each holds the lock in part for a moment.
const CONTENTION: Duration = Duration::from_millis(250);

/// The lock of a runner: SQLite's own lock of an empty file beside the log.
///
/// The log itself is locked only while it is written, so that it can be read. Locks of SQLite belong to the process, so a
/// supervisor that outlives the runner does not hold them, and they are known to two runners in one process.
///
/// # Drop
/// Unlocks. The file stays: if it were removed, two runners could hold locks of two files with one name.
#[derive(Debug)]
pub(crate) struct Lock {
    _connection: Connection,
}

impl Lock {
    /// Takes the lock. `None`: another runner has it.
    ///
    /// # Errors
    /// The file cannot be created, opened or locked.
    pub(crate) fn take(log: &Path) -> Result<Option<Lock>, LogError> {
        match lock(&lock_path(log)) {
            Ok(connection) => Ok(Some(Lock { _connection: connection })),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(None),
            Err(error) => Err(LogError::sqlite(log, error)),
        }
    }
}

fn lock(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(CONTENTION)?;
    connection.execute_batch("BEGIN EXCLUSIVE")?;
    Ok(connection)
}

/// Returns the path of the file that is locked.
pub(crate) fn lock_path(log: &Path) -> PathBuf {
    let mut name = OsString::from(log);
    name.push("-lock");
    name.into()
}
