//! A file that may be a log, looked at without a change of it or of the files beside it.

use std::path::Path;

use pipewright_os::base::private_file::{self, Facts};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::{LogError, LogErrorKind};
use super::files;
use super::runner::Runner;
use super::schema::{self, APPLICATION_ID, STEPS};
use super::sqlite::prepare;

/// Checks that the file is a log that this version understands, without a change of it or of its locks.
pub(super) fn check_file(path: &Path) -> Result<(), LogError> {
    let connection = open_immutable(path).map_err(|error| open_error(path, error))?;
    let sqlite = |error| LogError::sqlite(path, error);
    // A move of the write-ahead log into the file that was cut short leaves a first page that counts more pages than there are.
    // SQLite then takes the count from the write-ahead log. It allows the difference where the schema may be edited.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).map_err(sqlite)?;
    connection.pragma_update(None, "writable_schema", true).map_err(sqlite)?;
    check_header(&connection, path)
}

/// Refuses a name of a log whose write-ahead log is beside another of its names.
pub(super) fn check_names(path: &Path, found: &Facts) -> Result<(), LogError> {
    let wal = files::find(path, "-wal", found)?.map_or(0, |wal| wal.bytes());
    if found.names() <= 1 || wal > 0 {
        return Ok(());
    }
    let connection = open_immutable(path).map_err(|error| open_error(path, error))?;
    match Runner::last(&connection) {
        Ok(runner) if runner.as_ref().is_none_or(|runner| runner.has_ended) => Ok(()),
        // While the log moves into the file, that is not whole.
        _ => Err(LogError::new(path, LogErrorKind::OtherName)),
    }
}

/// Opens a file as if it were on a read-only medium: without locks, and without the files beside it.
pub(super) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(immutable_uri(path), flags)?;
    prepare(&connection)?;
    Ok(connection)
}

/// Returns the name of a file for SQLite, with each byte that has a meaning in it escaped. The path is absolute.
fn immutable_uri(path: &Path) -> String {
    // The name of the machine, between two and the third slash, is empty.
    let mut uri = String::from("file://");
    // A path of Windows may begin with a letter.
    if path.as_os_str().as_encoded_bytes().first().is_some_and(u8::is_ascii_alphabetic) {
        uri.push('/');
    }
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'\\' if cfg!(windows) => uri.push('/'),
            byte if byte.is_ascii_alphanumeric() || b"/._-:".contains(byte) => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// Checks whose file it is. The first page has it, and is never only in the write-ahead log: see [`create`].
pub(super) fn check_header(connection: &Connection, path: &Path) -> Result<(), LogError> {
    let sqlite = |error| LogError::sqlite(path, error);
    let pages: i64 =
        connection.pragma_query_value(None, "page_count", |row| row.get(0)).map_err(sqlite)?;
    let application: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(sqlite)?;
    let version = schema::version(connection).map_err(sqlite)?;
    // A new log gets its name when it is whole.
    if pages == 0 {
        return Err(LogError::new(path, LogErrorKind::Corrupt));
    }
    if application != APPLICATION_ID {
        return Err(LogError::new(path, LogErrorKind::NotALog));
    }
    if version < 1 {
        return Err(LogError::new(path, LogErrorKind::Corrupt));
    }
    if version > STEPS.len() as i64 {
        return Err(LogError::new(path, LogErrorKind::Newer { version }));
    }
    Ok(())
}

/// Adds the system's reason to an error of SQLite that only says that a file cannot be opened.
pub(super) fn open_error(path: &Path, error: rusqlite::Error) -> LogError {
    let error = LogError::sqlite(path, error);
    if *error.kind() != LogErrorKind::Open {
        return error;
    }
    // It is not opened for that: to close it would release the locks of SQLite in this process.
    match private_file::check_access(path) {
        Err(reason) => LogError::io(path, reason),
        Ok(()) => error,
    }
}
