//! Outputs of jobs that the log has as ok, and that a power cut has taken.
//!
//! A job is ok once its output is on disk, as far as the system knows. A disk that lies, or a filesystem that cannot be synced, may
//! lose it all the same. So when a run has ended with its machine, the files of its last jobs are looked at.

use std::fs;
use std::path::Path;

use pipewright_os::base::error::Quoted;
use pipewright_os::host::boot::boot_id;
use rusqlite::{Connection, params};

use super::state::JobState;

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
        let folder = row.get_ref(1)?.as_bytes().map(String::from_utf8_lossy).unwrap_or_default();
        let bytes = [row.get::<_, i64>(2)?, row.get::<_, i64>(3)?].map(i64::unsigned_abs);
        match missing(Path::new(&*folder), bytes) {
            Some(what) if lines.len() < MOST_NAMED => {
                lines.push(format!("the output of job {number}, which is ok, is lost: {what}"));
            }
            Some(_) => others += 1,
            None => {}
        }
    }
    if others > 0 {
        lines.push(format!("the output of {others} more jobs that are ok is lost"));
    }
    Ok(lines)
}

/// Returns what is missing in the folder of a job.
fn missing(folder: &Path, bytes: [u64; 2]) -> Option<String> {
    let path = folder.join("job.json");
    let facts = fs::read(&path).ok();
    let facts = facts.and_then(|facts| serde_json::from_slice::<serde_json::Value>(&facts).ok());
    let Some(facts) = facts else {
        return Some(format!("{} is not there, or has no facts", Quoted(path.as_os_str())));
    };
    // What was cut on purpose is not lost.
    let is_whole = |has: u64, of: u64| has >= of || has > 0 && facts["truncated"] == true;
    ["stdout", "stderr"].into_iter().zip(bytes).find_map(|(name, of)| {
        let path = folder.join(name);
        let has = fs::metadata(&path).map_or(0, |found| found.len());
        (!is_whole(has, of))
            .then(|| format!("{} has {has} of {of} bytes", Quoted(path.as_os_str())))
    })
}
