//! A log that is resumed without its input: it has to have all jobs, and they run where they ran.

use std::path::Path;

use rusqlite::Connection;

use super::error::{LogError, LogErrorKind};
use super::runner::Runner;
use super::schema;

/// Checks that the batch can go on without its input, and returns the number of its jobs.
///
/// # Errors
/// An older version has written the log, the last run did not read its input to the end, or jobs ran in another directory.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<u64, LogError> {
    let sqlite = |error| LogError::sqlite(path, error);
    let kind = match schema::version(connection).map_err(sqlite)? {
        ..=1 => LogErrorKind::LacksSettings {
            description: Runner::last_command(connection).map_err(sqlite)?,
        },
        _ => match (other_directory(connection), whole_input(connection)) {
            (Err(error), _) | (_, Err(error)) => return Err(sqlite(error)),
            // First: the input may be a file with a relative path, too.
            (Ok(Some(dir)), _) => LogErrorKind::OtherDirectory { dir },
            (Ok(None), Ok(Some(jobs))) => return Ok(jobs),
            (Ok(None), Ok(None)) => {
                let description = Runner::last_command(connection).map_err(sqlite)?;
                LogErrorKind::LacksInput { description }
            }
        },
    };
    Err(LogError::new(path, kind))
}

/// Returns the directory of the last run, if it is not the current one.
fn other_directory(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let query = "SELECT max(cwd) FROM runs WHERE number = (SELECT max(number) FROM runs)";
    let dir: Option<String> = connection.query_row(query, [], |row| row.get(0))?;
    let current_dir = std::env::current_dir().ok().map(|dir| dir.display().to_string());
    Ok(dir.filter(|dir| Some(dir) != current_dir.as_ref()))
}

/// Returns the number of jobs, if the last run has read its input to the end and the log has a row for each.
fn whole_input(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    let query = "SELECT max(jobs), (SELECT count(*) FROM jobs WHERE removed IS NULL) FROM runs \
                 WHERE number = (SELECT max(number) FROM runs)";
    let (noted, rows) = connection
        .query_row(query, [], |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, i64>(1)?)))?;
    // A job that never ran may have been left out while the log could not be written.
    Ok(noted.filter(|noted| *noted == rows).map(i64::unsigned_abs))
}
