//! The log as others read it, also while a runner writes it.
//!
//! | file | contents |
//! |---|---|
//! | `rows.rs` | jobs, attempts, runs and counts as plain values |
//! | `queries.rs` | what can be asked |
//! | `guard.rs` | a log that somebody has made to harm its reader |
//! | `peaks.rs` | the memory that jobs have used |
//! | `stored.rs` | jobs to run again |

mod guard;
mod peaks;
mod queries;
mod rows;
mod stored;

use std::path::{Path, PathBuf};

use pipewright_os::base::private_file::Facts;
use rusqlite::{Connection, OpenFlags};

use guard::Guard;
pub(crate) use queries::{AttemptFilter, JobQuery};
pub(crate) use rows::{AttemptRow, Counts, JobRow, RunningRow};
#[cfg(test)]
pub(crate) use rows::{BatchRow, RunRow};
pub(crate) use stored::Numbered;

use super::check::{check_file, check_header, open_error, open_immutable};
use super::error::LogError;
use super::{files, schema, sqlite};

/// A log, open for reading. Each call sees the log as after some commit.
#[derive(Debug)]
pub(crate) struct Log {
    connection: Connection,
    guard: Guard,
    path: PathBuf,
}

impl Log {
    /// Opens a log for reading. It may be in use by a runner, or on a read-only medium.
    ///
    /// # Errors
    /// The file is missing, is no log, is damaged or newer, or cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Log, LogError> {
        let path = &files::real(path)?;
        files::check_to_read(path)?;
        check_file(path)?;
        let connection = open_to_read(path).map_err(|error| open_error(path, error))?;
        check_header(&connection, path)?;
        let guard = Guard::set(&connection, path)?;
        Ok(Log { connection, guard, path: path.to_owned() })
    }

    /// Opens the log of a batch that this process continues. Its jobs may have inputs of any length.
    ///
    /// # Errors
    /// As for [`open`](Log::open).
    pub(crate) fn open_to_continue(path: &Path) -> Result<Log, LogError> {
        let log = Log::open(path)?;
        log.guard.allow_long_values(&log.connection).map_err(|error| log.error(error))?;
        Ok(log)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens a file for reading.
pub(super) fn open_to_read(path: &Path) -> rusqlite::Result<Connection> {
    // A closed log is complete without the files beside it. One of another user gets none of this user, which he would not trust.
    if Facts::look(path).is_ok_and(|log| log.is_some_and(|log| log.is_foreign()))
        && !has_file(path, "-wal")
        && !has_file(path, "-journal")
    {
        return open_immutable(path);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    sqlite::prepare(&connection)?;
    // The first read finds out if the files of the write-ahead log can be used.
    match schema::version(&connection) {
        Ok(_) => Ok(connection),
        // The folder cannot be written.
        Err(_) if !has_file(path, "-wal") => open_immutable(path),
        Err(error) => Err(error),
    }
}

fn has_file(log: &Path, suffix: &str) -> bool {
    // Without an answer it is taken to exist: its changes must not be missed.
    Facts::look(&files::beside(log, suffix)).map_or(true, |facts| facts.is_some())
}
