//! A log that is resumed without its input: it has to have all jobs, and they run where they ran.

use std::path::Path;

use rusqlite::Connection;

use super::error::{LogError, LogErrorKind};
use super::schema;

/// Checks that the batch can go on without its input, and returns the number of its jobs.
///
/// # Errors
/// An older version has written the log, the last run did not read its input to the end, or jobs ran in another directory.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<u64, LogError> {
    let sqlite = |error| LogError::sqlite(path, error);
    let version = schema::version(connection).map_err(sqlite)?;
    let text = |query| connection.query_row(query, [], |row| row.get::<_, Option<String>>(0));
    let description = || text("SELECT max(description) FROM batch").map(Option::unwrap_or_default);
    let lacks_input = || match version {
        0 => Ok(LogErrorKind::LacksInput { description: String::new() }),
        _ => description().map(|description| LogErrorKind::LacksInput { description }),
    };
    if version == 1 {
        let description = description().map_err(sqlite)?;
        return Err(LogError::new(path, LogErrorKind::LacksSettings { description }));
    }
    let jobs = match version {
        0 => None,
        _ => whole_input(connection).map_err(sqlite)?,
    };
    let Some(jobs) = jobs else {
        return Err(LogError::new(path, lacks_input().map_err(sqlite)?));
    };
    let dir = text("SELECT max(cwd) FROM runs WHERE number = (SELECT max(number) FROM runs)");
    let current_dir = std::env::current_dir().ok().map(|dir| dir.display().to_string());
    match dir.map_err(sqlite)? {
        Some(dir) if Some(&dir) != current_dir.as_ref() => {
            Err(LogError::new(path, LogErrorKind::OtherDirectory { dir }))
        }
        _ => Ok(jobs),
    }
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
