//! The runner of a log: this process, and the one that wrote the log before.

use std::path::Path;
use std::time::SystemTime;

use pipewright_os::host::host_info::{boot_id, host_name};
use pipewright_os::process::open::start_time;
use rusqlite::{Connection, OptionalExtension, params};

use super::RunFacts;
use super::ledger::unix_seconds;
use super::schema;
use super::sqlite::signed;

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
        let of_run = match schema::version(connection)? {
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
            "INSERT INTO runs (number, started, slots, pid, pid_start, boot_id, host, cwd, jobs, input, remote, command, id) \
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
