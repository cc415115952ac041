//! The process that writes a log, and the outputs of a killed one that a power cut has taken.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use pipewright_os::base::error::Quoted;
use pipewright_os::host::host_info::{boot_id, host_name};
use pipewright_os::process::open::start_time;
use rusqlite::{Connection, OptionalExtension, params};

use super::RunFacts;
use super::ledger::{JobState, unix_seconds};
use super::sqlite::{self, signed};
use crate::job::os_string;

/// A runner that has written to a log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Runner {
    pub(crate) run: u32,
    pub(crate) pid: u32,
    pid_start: Option<u64>,
    boot_id: Option<String>,
    pub(crate) host: Option<String>,
    /// True if it has written its end.
    pub(crate) has_ended: bool,
}

impl Runner {
    /// Returns this process.
    pub(crate) fn this(run: u32) -> Runner {
        let pid = std::process::id();
        let (boot_id, host) = (boot_id(), host_name());
        Runner { run, pid, pid_start: start_time(pid), boot_id, host, has_ended: false }
    }

    /// Reads the runner that wrote last. `None`: there was none.
    pub(crate) fn last(connection: &Connection) -> rusqlite::Result<Option<Runner>> {
        let query = "SELECT number, pid, pid_start, boot_id, host, ended IS NOT NULL FROM runs \
                     ORDER BY number DESC LIMIT 1";
        let runner = |row: &rusqlite::Row<'_>| {
            Ok(Runner {
                run: row.get(0)?,
                pid: row.get(1)?,
                pid_start: row.get::<_, Option<i64>>(2)?.and_then(|start| start.try_into().ok()),
                boot_id: row.get(3)?,
                host: row.get(4)?,
                has_ended: row.get(5)?,
            })
        };
        connection.query_row(query, [], runner).optional()
    }

    /// Returns the command and the input of the last run that had some, for people.
    pub(crate) fn last_command(connection: &Connection) -> rusqlite::Result<String> {
        let of_run = match sqlite::version(connection)? {
            ..=4 => "NULL",
            _ => {
                "(SELECT command FROM runs WHERE command IS NOT NULL ORDER BY number DESC LIMIT 1)"
            }
        };
        let query = format!("SELECT coalesce({of_run}, max(description), '') FROM batch");
        connection.query_row(&query, [], |row| row.get(0))
    }

    /// Returns true if it certainly runs: it is a process of this boot of this machine, with its start time.
    ///
    /// The second check, for a lock file that somebody has removed.
    pub(crate) fn runs(&self) -> bool {
        let this = Runner::this(self.run);
        !self.has_ended
            && self.pid != this.pid
            && self.is_of_this_boot()
            && self.pid_start.is_some()
            && start_time(self.pid) == self.pid_start
    }

    /// Returns true if it runs, as far as this process can tell, and false if it was killed. `None`: it is on another
    /// machine, say, and nobody here knows. This process is one that runs.
    pub(crate) fn lives(&self) -> Option<bool> {
        // Without its own, this process sees no others.
        let is_seen = self.is_of_this_boot() && start_time(std::process::id()).is_some();
        let start = self.pid_start.filter(|_| is_seen)?;
        Some(!self.has_ended && start_time(self.pid) == Some(start))
    }

    /// Returns true if it ran on this machine, since this boot.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.host == host_name() && self.boot_id == boot_id()
    }

    /// Writes the beginning of its run.
    pub(crate) fn insert(
        &self,
        connection: &Connection,
        facts: &RunFacts,
        jobs: Option<u64>,
        current_dir: Option<&Path>,
    ) -> rusqlite::Result<()> {
        let current_dir = current_dir.map(|dir| dir.display().to_string());
        connection.execute(
            "INSERT INTO runs (number, started, slots, pid, pid_start, boot_id, host, cwd, jobs, input, remote, \
             command, id) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, lower(hex(randomblob(16))))",
            params![
                self.run,
                unix_seconds(SystemTime::now()),
                facts.slots,
                self.pid,
                self.pid_start.map(signed),
                self.boot_id,
                self.host,
                current_dir,
                jobs.map(signed),
                facts.input,
                facts.remote,
                // Without its input, it has the command of the run before.
                Some(&facts.description).filter(|it| !facts.from_log && !it.is_empty()),
            ],
        )?;
        Ok(())
    }
}

// Outputs of jobs that the log has as ok, and that a power cut has taken.
//
// A job is ok once its output is on disk, as the system reports it. A disk that lies, or a filesystem that cannot be
// synced, may lose it all the same. So when a run has ended with its machine, the files of its last jobs are looked at.

/// The last jobs of a run, whose files are looked at: what was written long before a cut is on disk.
const MOST_LOOKED_AT: u32 = 1000;
/// The most jobs that are named.
const MOST_NAMED: usize = 10;

/// Returns a line for each job whose output is not whole, of runs that ended with their machine.
pub(super) fn lost_outputs(connection: &Connection) -> rusqlite::Result<Vec<String>> {
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
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        looked => looked.map(Some),
    }
}
