//! The log as others read it, also while a runner writes it.
//!
//! | file | contents |
//! |---|---|
//! | `rows.rs` | jobs, attempts, runs and counts as plain values |
//! | `queries.rs` | what can be asked |
//! | `peaks.rs` | the memory that jobs have used |
//! | `stored.rs` | jobs to run again |

mod peaks;
mod queries;
mod rows;
mod stored;

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

pub(crate) use queries::{AttemptFilter, JobQuery};
pub(crate) use rows::{AttemptRow, Counts, JobRow, RunningRow};
#[cfg(test)]
pub(crate) use rows::{BatchRow, RunRow};
pub(crate) use stored::Numbered;

use super::error::{LogError, LogErrorKind};
use super::open::{absolute, check_file, open_error, open_immutable};
use super::{schema, sqlite};

/// A log, open for reading. Each call sees the log as after some commit.
#[derive(Debug)]
pub(crate) struct Log {
    connection: Connection,
    path: PathBuf,
}

impl Log {
    /// Opens a log for reading. It may be in use by a runner, or on a read-only medium.
    ///
    /// # Errors
    /// The file is missing, is no log, is damaged or newer, or cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Log, LogError> {
        let path = &absolute(path)?;
        check_file(path)?;
        let connection = open_to_read(path).map_err(|error| open_error(path, error))?;
        // A log that its creator has not finished has no table yet.
        match schema::version(&connection) {
            Ok(0) => Err(LogError::new(path, LogErrorKind::NotALog)),
            Ok(_) => Ok(Log { connection, path: path.to_owned() }),
            Err(error) => Err(LogError::sqlite(path, error)),
        }
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens a file for reading.
pub(super) fn open_to_read(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    sqlite::prepare(&connection)?;
    // The first read finds out if the files of the write-ahead log can be used.
    match schema::version(&connection) {
        Ok(_) => Ok(connection),
        // In a folder that cannot be written, a closed log is complete without them.
        Err(_) if !has_write_ahead_log(path) => open_immutable(path),
        Err(error) => Err(error),
    }
}

fn has_write_ahead_log(path: &Path) -> bool {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    // Without an answer it is taken to exist: its changes must not be missed.
    fs::metadata(&name).map_or_else(|error| error.kind() != std::io::ErrorKind::NotFound, |_| true)
}
