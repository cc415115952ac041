//! Outputs of jobs that the log has as ok, and that a power cut has taken.
//!
//! A job is ok once its output is on disk, as far as the system knows. A disk that lies, or a filesystem that cannot be synced, may
//! lose it all the same. So when a run has ended with its machine, the files of its last jobs are looked at.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use pipewright_os::base::error::Quoted;
use pipewright_os::host::host_info::boot_id;
use rusqlite::{Connection, params};

use super::ledger::JobState;
use crate::job::os_string;

/// The last jobs of a run, whose files are looked at: what was written long before a cut is on disk.
const MOST_LOOKED_AT: u32 = 1000;
/// The most jobs that are named.
const MOST_NAMED: usize = 10;

/// Returns a line for each job whose output is not whole, of runs that ended with their machine.
pub(super) fn lost(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    // The numbers of bytes are those of the attempt, and its files have less if they were limited.
    let mut query = connection.prepare(
        "SELECT jobs.number, output_path, stdout_bytes, stderr_bytes FROM attempts \
         JOIN jobs ON jobs.last_attempt = attempts.id JOIN runs ON runs.number = attempts.run \
         WHERE jobs.state = ?1 AND output_path IS NOT NULL AND (runs.ended IS NULL OR runs.how = ?2) \
         AND runs.boot_id IS NOT NULL AND runs.boot_id <> ?3 ORDER BY attempts.id DESC LIMIT ?4",
    )?;
    let Some(boot) = boot_id() else { return Ok(Vec::new()) };
    let values =
        params![JobState::SUCCEEDED.name(), super::open::INTERRUPTED, boot, MOST_LOOKED_AT];
    let mut rows = query.query(values)?;
    let (mut lines, mut others) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let number = row.get::<_, i64>(0)?;
        // What is no path here was written on another system, or not by us.
        let folder = row.get_ref(1)?.as_bytes().ok().map(|path| os_string(path.to_vec()));
        let Some(Ok(folder)) = folder else { continue };
        let bytes = [row.get::<_, i64>(2)?, row.get::<_, i64>(3)?].map(i64::unsigned_abs);
        let line = match missing(Path::new(&folder), bytes) {
            Ok(None) => continue,
            Ok(Some(what)) => format!("the output of job {number}, which is ok, is lost: {what}"),
            Err(error) => {
                format!("the output of job {number}, which is ok, cannot be looked at: {error}")
            }
        };
        match lines.len() < MOST_NAMED {
            true => lines.push(line),
            false => others += 1,
        }
    }
    if others > 0 {
        lines.push(format!(
            "the output of {others} more jobs that are ok is lost or cannot be looked at"
        ));
    }
    Ok(lines)
}

/// Returns what is missing in the folder of a job.
fn missing(folder: &Path, bytes: [u64; 2]) -> io::Result<Option<String>> {
    let path = folder.join("job.json");
    let facts = found(fs::read(&path))?.unwrap_or_default();
    let Ok(facts) = serde_json::from_slice::<serde_json::Value>(&facts) else {
        return Ok(Some(format!("{} is not there, or has no facts", Quoted(path.as_os_str()))));
    };
    for (name, of) in ["stdout", "stderr"].into_iter().zip(bytes) {
        let path = folder.join(name);
        let has = found(fs::metadata(&path))?.map_or(0, |found| found.len());
        // What was cut on purpose is not lost.
        let is_whole = has >= of || has > 0 && facts["truncated"] == true;
        if !is_whole {
            let path = Quoted(path.as_os_str());
            return Ok(Some(format!("{path} has {has} of {of} bytes")));
        }
    }
    Ok(None)
}

/// Returns nothing if nothing has the name. Other errors do not tell that.
fn found<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        looked => looked.map(Some),
    }
}
