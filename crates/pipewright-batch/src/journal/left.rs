//! Jobs of a killed runner that still run.
//!
//! A runner takes its jobs along when it is killed, and a resumed batch finds the rest by a variable in their environment. Neither
//! reaches a command that has become another user's, as with `sudo`: the kernel forgets to signal it, and nobody may read its
//! environment. So the log has the process of each attempt that runs.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{ErrorKind, ProcessHandle};
use pipewright_os::process::open::{group_lives, start_time};
use rusqlite::Connection;

use super::changes::Process;
use super::error::LogError;
use super::schema;

/// The time that a killed process may take to end.
const END_WAIT: Duration = Duration::from_secs(10);
/// The time that the rest of a group may take to end, which its own runner has killed.
const REST_WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// A job that ran when its runner was killed.
#[derive(Debug)]
pub(super) struct LeftJob {
    number: u64,
    process: Process,
}

/// Reads those whose process the log has.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Vec<LeftJob>> {
    if schema::version(connection)? <= 4 {
        return Ok(Vec::new());
    }
    let mut query = connection.prepare(
        "SELECT jobs.number, pid, pid_start FROM running JOIN jobs ON jobs.id = running.job \
         WHERE pid IS NOT NULL AND pid_start IS NOT NULL ORDER BY job",
    )?;
    let left = query.query_map([], |row| {
        let number = row.get::<_, i64>(0)?.unsigned_abs();
        let start = row.get::<_, i64>(2)?.unsigned_abs();
        Ok(LeftJob { number, process: Process { pid: row.get(1)?, start } })
    })?;
    left.collect()
}

/// Kills those that are alive, and waits for their ends. Returns their number.
///
/// # Errors
/// One cannot be killed, or does not end.
pub(super) fn end(path: &Path, left: &[LeftJob]) -> Result<u32, LogError> {
    let mut killed = 0;
    for job in left.iter().filter(|job| job.lives()) {
        let refused = |error| LogError::still_runs(path, job.number, job.process.pid, error);
        let is_killed = job.kill().map_err(refused)?;
        killed += u32::from(is_killed);
        let until = Instant::now() + if is_killed { END_WAIT } else { REST_WAIT };
        while job.lives() {
            if Instant::now() >= until {
                return Err(refused(io::Error::other("it does not end")));
            }
            thread::park_timeout(PAUSE);
        }
    }
    Ok(killed)
}

impl LeftJob {
    /// Returns true if its process lives, or another one of its group. Each command of a job leads a group, whose number no other
    /// process gets while one is in it.
    fn lives(&self) -> bool {
        let Process { pid, start } = self.process;
        match start_time(pid) {
            Some(found) => found == start,
            // Where no process can be seen, none would have been noted.
            None => group_lives(pid).unwrap_or(false),
        }
    }

    /// Returns false if its process has ended. Its group lives then, or that of another one: it is not killed.
    fn kill(&self) -> io::Result<bool> {
        let Process { pid, start } = self.process;
        let opened = match ProcessHandle::open(pid) {
            Ok(opened) => opened,
            Err(error) if matches!(error.kind(), ErrorKind::NoSuchProcess) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        // Another process may have got the number before it was opened.
        match start_time(pid) == Some(start) {
            true => Ok(opened.kill()?),
            false => Ok(false),
        }
    }
}
