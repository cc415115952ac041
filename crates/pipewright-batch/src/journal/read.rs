//! The log as others read it, also while a runner writes it: what can be asked, jobs to run again, and a bound for a
//! log that somebody has made to harm its reader.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use pipewright_os::base::private_file::Facts;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Params, Row, params};

use super::files::{self, check_file, check_header, open_error, open_immutable};
use super::rows::{
    ATTEMPT_COLUMNS, AttemptRow, BatchRow, Counts, JOB_COLUMNS, JobRow, RunRow, RunningRow,
    node_column, unsigned,
};
use super::runner::{self, Runner};
use super::sqlite::{self, UNKNOWN_SETTINGS};
use super::{JobState, LogError, LogErrorKind};
use crate::job::stored::StoredJob;
use crate::job::{Job, JobId};
use crate::vocabulary::JobOutcome;

/// A log, open for reading. Each call sees the log as after some commit.
#[derive(Debug)]
pub(crate) struct Log {
    pub(super) connection: Connection,
    guard: Guard,
    path: PathBuf,
    /// Dropped after the connection.
    _leftovers: Option<Leftovers>,
}

impl Log {
    /// Opens a log for reading. It may be in use by a runner, or on a read-only medium.
    ///
    /// # Errors
    /// The file is missing, is no log, is damaged or newer, or cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Log, LogError> {
        let path = &files::real(path)?;
        let log = Log::open_beside_runner(path)?;
        // Only now: nothing is ever written to a file that is no log, or one that is refused.
        Ok(Log { _leftovers: Some(Leftovers { log: path.to_owned() }), ..log })
    }

    fn open_beside_runner(path: &Path) -> Result<Log, LogError> {
        files::check_to_read(path)?;
        check_file(path)?;
        let connection = open_to_read(path).map_err(|error| open_error(path, error))?;
        check_header(&connection, path)?;
        let guard = Guard::set(&connection, path)?;
        Ok(Log { connection, guard, path: path.to_owned(), _leftovers: None })
    }

    /// Opens the log of a batch that this process continues. Its jobs may have inputs of any length.
    ///
    /// # Errors
    /// As for [`open`](Log::open).
    pub(crate) fn open_to_continue(path: &Path) -> Result<Log, LogError> {
        let log = Log::open_beside_runner(&files::real(path)?)?;
        log.guard.allow_long_values(&log.connection).map_err(|error| log.error(error))?;
        Ok(log)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens a file for reading.
pub(super) fn open_to_read(path: &Path) -> rusqlite::Result<Connection> {
    // A closed log is complete without the files beside it. One of another user gets none of this user, which he would
    // not trust.
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
    match sqlite::version(&connection) {
        Ok(_) => Ok(connection),
        // The folder cannot be written.
        Err(_) if !has_file(path, "-wal") => open_immutable(path),
        Err(error) => Err(error),
    }
}

/// The tries to remove what a reader leaves, and the pause between two.
const CLOSES: u32 = 3;
const CLOSE_PAUSE: Duration = Duration::from_millis(10);

/// The files beside a log that a reader leaves there: SQLite makes them for it, and a connection that only reads cannot
/// remove them. The runner could not either, if its log was being read when it ended.
///
/// # Drop
/// Removes them, if they hold nothing that the log lacks, and no other connection is there.
#[derive(Debug)]
struct Leftovers {
    log: PathBuf,
}

impl Leftovers {
    /// Lets SQLite remove them, under the lock that excludes all other connections. The write-ahead log of a run that
    /// has not ended stays for the runner that resumes it.
    ///
    /// Returns true if they are still there because two connections were closed at the same moment: then neither has
    /// removed them. `None`: they are gone, or have to stay.
    fn remove(&self) -> Option<bool> {
        let facts = files::check_to_run(&self.log, false).ok()?;
        let wal = files::open(&self.log, "-wal", &facts).ok()??;
        let is_empty = wal.metadata().ok()?.len() == 0;
        if files::is_damaged_wal(wal).ok()? {
            return None;
        }
        let connection = sqlite::open_to_write(&self.log).ok()?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).ok()?;
        // It may be another file by now, or one that was made to harm its reader.
        check_header(&connection, &self.log).ok()?;
        let _bound = Guard::set(&connection, &self.log).ok()?;
        let runner = Runner::last(&connection).ok()?;
        if !is_empty && !runner.is_some_and(|runner| runner.has_ended) {
            return None;
        }
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).ok()?;
        drop(connection);
        Some(has_file(&self.log, "-wal"))
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        // After that, the next reader or the next runner does it.
        for _ in 0..CLOSES {
            match self.remove() {
                Some(true) => thread::park_timeout(CLOSE_PAUSE),
                _ => return,
            }
        }
    }
}

fn has_file(log: &Path, suffix: &str) -> bool {
    // Without an answer it is taken to exist: its changes must not be missed.
    Facts::look(&files::beside(log, suffix)).map_or(true, |facts| facts.is_some())
}

// The questions that `pipewright jobs` asks a log.

/// Attempts to list. All that are set apply.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AttemptFilter {
    /// Only the last attempts of jobs in this state. The class of a failure does not matter.
    pub(crate) state: Option<JobState>,
    /// Only attempts that did not exit with 0.
    pub(crate) failed: bool,
    /// Only attempts after this row, which the last answer ended with: to follow a log while it is written.
    pub(crate) after: Option<u64>,
    /// This number of the slowest, slowest first. `None`: all, in the order of their ends.
    pub(crate) slowest: Option<u32>,
}

/// A job, as people name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobQuery<'a> {
    /// The first hexadecimal digits of its identity.
    Identity(&'a str),
    /// Its number in the input.
    Number(u64),
    /// Its name.
    Name(&'a str),
}

impl Log {
    /// Returns the facts of the batch.
    ///
    /// # Errors
    /// The log cannot be read, here and below.
    pub(crate) fn batch(&self) -> Result<BatchRow, LogError> {
        let query = "SELECT id, created, tool_version, description FROM batch";
        let batch = self.connection.query_row(query, [], |row| {
            Ok(BatchRow {
                id: row.get(0)?,
                created: row.get(1)?,
                tool_version: row.get(2)?,
                description: row.get(3)?,
            })
        });
        batch.map_err(|error| self.error(error))
    }

    /// Returns the command and the input of the last run that had some.
    pub(crate) fn last_command(&self) -> Result<String, LogError> {
        Runner::last_command(&self.connection).map_err(|error| self.error(error))
    }

    /// Returns a line for each job that is ok, and whose output a power cut has taken.
    pub(crate) fn lost_outputs(&self) -> Result<Vec<String>, LogError> {
        runner::lost_outputs(&self.connection).map_err(|error| self.error(error))
    }

    /// Returns true if the runner that wrote last lives, and false if it was killed or there is none. `None`: nobody
    /// here knows.
    ///
    /// # Errors
    /// The log cannot be read, here and below.
    pub(crate) fn is_running(&self) -> Result<Option<bool>, LogError> {
        let runner = Runner::last(&self.connection).map_err(|error| self.error(error))?;
        Ok(runner.map_or(Some(false), |runner| runner.lives()))
    }

    /// Returns the number of jobs of the last input, if it was read to its end.
    pub(crate) fn jobs_of_input(&self) -> Result<Option<u64>, LogError> {
        match sqlite::version(&self.connection).map_err(|error| self.error(error))? {
            ..=1 => Ok(None),
            _ => whole_input(&self.connection).map_err(|error| self.error(error)),
        }
    }

    /// Returns the runs, in order.
    pub(crate) fn runs(&self) -> Result<Vec<RunRow>, LogError> {
        let query = "SELECT number, started, ended, how, exit_code, slots, pid, host, cwd FROM runs ORDER BY number";
        let run = |row: &Row<'_>| {
            Ok(RunRow {
                number: row.get(0)?,
                started: row.get(1)?,
                ended: row.get(2)?,
                how: row.get(3)?,
                exit_code: row.get(4)?,
                slots: row.get(5)?,
                pid: row.get(6)?,
                host: row.get(7)?,
                current_dir: row.get(8)?,
            })
        };
        self.list(query, [], run)
    }

    /// Returns the number of jobs by state, all from one moment.
    pub(crate) fn counts(&self) -> Result<Counts, LogError> {
        let query = "SELECT state, count(*) FROM jobs GROUP BY state \
                     UNION ALL SELECT NULL, count(*) FROM running";
        let count =
            |row: &Row<'_>| Ok((row.get::<_, Option<String>>(0)?, unsigned(row, 1)?.unwrap_or(0)));
        let mut counts = Counts::default();
        for (state, count) in self.list(query, [], count)? {
            match state {
                Some(state) => counts.add(&state, count),
                None => counts.running = count,
            }
        }
        Ok(counts)
    }

    /// Calls the function for each job in this state, or in any, in the order of the log, until it breaks. The
    /// class of a failure does not matter.
    pub(crate) fn for_each_job(
        &self,
        state: Option<JobState>,
        each: impl FnMut(JobRow) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        let query =
            format!("SELECT {JOB_COLUMNS} FROM jobs WHERE ?1 IS NULL OR state = ?1 ORDER BY id");
        self.for_each(&query, [state.map(JobState::name)], JobRow::from_row, each)
    }

    /// Calls the function for each attempt of the filter, until it breaks.
    pub(crate) fn for_each_attempt(
        &self,
        filter: &AttemptFilter,
        each: impl FnMut(AttemptRow) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        let order = match filter.slowest {
            Some(_) => "attempts.elapsed_seconds DESC, attempts.id",
            None => "attempts.id",
        };
        let node = self.node_column()?;
        let query = format!(
            "SELECT {JOB_COLUMNS}, {ATTEMPT_COLUMNS}, {node} FROM attempts JOIN jobs ON jobs.id = attempts.job \
             WHERE attempts.id > ?1 \
             AND (?2 IS NULL OR (jobs.state = ?2 AND jobs.last_attempt = attempts.id)) \
             AND (NOT ?3 OR attempts.outcome <> 'exited' OR attempts.code <> 0) \
             ORDER BY {order} LIMIT ?4"
        );
        let after = filter.after.map_or(0, crate::journal::sqlite::signed);
        // A negative limit is none.
        let limit = filter.slowest.map_or(-1, i64::from);
        let values = params![after, filter.state.map(JobState::name), filter.failed, limit];
        self.for_each(&query, values, AttemptRow::from_row, each)
    }

    /// Returns the attempts of a job that have ended, in order. Reads all attempts of the log.
    pub(crate) fn attempts_of(&self, job: u32) -> Result<Vec<AttemptRow>, LogError> {
        let node = self.node_column()?;
        let query = format!(
            "SELECT {JOB_COLUMNS}, {ATTEMPT_COLUMNS}, {node} FROM attempts JOIN jobs ON jobs.id = attempts.job \
             WHERE attempts.job = ?1 ORDER BY attempts.id"
        );
        self.list(&query, [job], AttemptRow::from_row)
    }

    fn node_column(&self) -> Result<&'static str, LogError> {
        let version =
            crate::journal::sqlite::version(&self.connection).map_err(|error| self.error(error))?;
        Ok(node_column(version))
    }

    /// Returns the attempts that run now, the longest first.
    pub(crate) fn running(&self) -> Result<Vec<RunningRow>, LogError> {
        let query = format!(
            "SELECT {JOB_COLUMNS}, running.run, running.attempt, running.slot, running.since \
             FROM running JOIN jobs ON jobs.id = running.job ORDER BY running.since, running.job"
        );
        self.list(&query, [], RunningRow::from_row)
    }

    /// Returns the jobs that the query means, at most `limit` of them: a name or a few digits may mean several. Reads
    /// all jobs of the log.
    ///
    /// A number or a name means the job that the last input names so, if there is one.
    pub(crate) fn find(&self, query: JobQuery<'_>, limit: u32) -> Result<Vec<JobRow>, LogError> {
        let version =
            crate::journal::sqlite::version(&self.connection).map_err(|error| self.error(error))?;
        let removed = if version >= 2 { "removed IS NOT NULL" } else { "0" };
        let select = |condition: &str| match condition.starts_with("substr") {
            true => {
                format!("SELECT {JOB_COLUMNS} FROM jobs WHERE {condition} ORDER BY id LIMIT ?2")
            }
            false => format!(
                "SELECT {JOB_COLUMNS} FROM jobs WHERE {condition} AND {removed} = \
                 (SELECT min({removed}) FROM jobs WHERE {condition}) ORDER BY id LIMIT ?2"
            ),
        };
        match query {
            JobQuery::Identity(digits) => {
                let condition = select("substr(hex(identity), 1, length(?1)) = upper(?1)");
                self.list(&condition, params![digits, limit], JobRow::from_row)
            }
            JobQuery::Number(number) => {
                let number = crate::journal::sqlite::signed(number);
                self.list(&select("number = ?1"), params![number, limit], JobRow::from_row)
            }
            JobQuery::Name(name) => {
                self.list(&select("name = ?1"), params![name, limit], JobRow::from_row)
            }
        }
    }

    /// Returns the row of the last attempt that has ended, from which [`AttemptFilter::after`] follows the log.
    pub(crate) fn last_attempt(&self) -> Result<Option<u64>, LogError> {
        let query = "SELECT max(id) FROM attempts";
        let last = self.connection.query_row(query, [], |row| unsigned(row, 0)).optional();
        last.map(Option::flatten).map_err(|error| self.error(error))
    }

    pub(super) fn list<T>(
        &self,
        query: &str,
        values: impl Params,
        value: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, LogError> {
        let mut all = Vec::new();
        self.for_each(query, values, value, |value| {
            all.push(value);
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }

    pub(super) fn for_each<T>(
        &self,
        query: &str,
        values: impl Params,
        mut value: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
        mut each: impl FnMut(T) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        let read = || -> rusqlite::Result<()> {
            self.guard.begin(&self.connection)?;
            let mut statement = self.connection.prepare_cached(query)?;
            let mut rows = statement.query(values)?;
            while let Some(row) = rows.next()? {
                if each(value(row)?).is_break() {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|error| self.error(error))
    }

    pub(super) fn error(&self, error: rusqlite::Error) -> LogError {
        LogError::sqlite(&self.path, error)
    }
}

impl Log {
    /// Returns the largest amount of memory that an attempt of each job has used at one time, in bytes.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn peaks(&self) -> Result<HashMap<JobId, u64>, LogError> {
        let query = "SELECT jobs.identity, max(attempts.peak_rss_bytes) FROM attempts \
                     JOIN jobs ON jobs.id = attempts.job WHERE attempts.peak_rss_bytes IS NOT NULL \
                     GROUP BY attempts.job";
        let peak = |row: &Row<'_>| {
            let id = JobId::from_bytes(row.get(0)?);
            Ok((id, unsigned(row, 1)?.unwrap_or(0)))
        };
        let mut peaks = HashMap::new();
        self.for_each(query, [], peak, |(id, bytes)| {
            peaks.insert(id, bytes);
            ControlFlow::Continue(())
        })?;
        Ok(peaks)
    }
}

// The jobs of a log, made again.

/// A job of the log, and the number that it has in a run without an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Numbered {
    pub(crate) number: u32,
    pub(crate) row: u32,
}

impl Log {
    /// Returns all jobs of the batch, without those that the last input did not have, in the order of the input: 12
    /// bytes a job while they are read.
    ///
    /// A job has the number that it had, unless jobs of an earlier input have the same one. Then it goes to one that is
    /// not over, and the others follow after all jobs.
    ///
    /// # Errors
    /// The log cannot be read, or is damaged.
    pub(crate) fn numbered(&self) -> Result<Vec<Numbered>, LogError> {
        let query = "SELECT number, state = ?1, id FROM jobs WHERE removed IS NULL";
        let job = |row: &Row<'_>| Ok((row.get::<_, u32>(0)?, row.get::<_, bool>(1)?, row.get(2)?));
        let mut jobs: Vec<(u32, bool, u32)> =
            self.list(query, [JobState::SUCCEEDED.name()], job)?;
        jobs.sort_unstable();
        let last = jobs.last().map_or(0, |(number, ..)| *number);
        let (mut numbered, mut others) = (Vec::with_capacity(jobs.len()), Vec::new());
        let mut previous = 0;
        for (number, _, row) in jobs {
            match number > previous {
                true => numbered.push(Numbered { number, row }),
                false => others.push(row),
            }
            previous = number;
        }
        for (row, number) in others.into_iter().zip(last.saturating_add(1)..) {
            numbered.push(Numbered { number, row });
        }
        Ok(numbered)
    }

    /// Calls the function with the command of each job that a run without an input would start now, until it breaks.
    /// The command is quoted for a shell.
    ///
    /// # Errors
    /// The log cannot be read, or does not have all jobs.
    pub(crate) fn for_each_to_run(
        &self,
        retry_failed: bool,
        rerun_unknown: bool,
        each: impl FnMut(Vec<u8>) -> ControlFlow<()>,
    ) -> Result<(), LogError> {
        check_input(&self.connection, &self.path)?;
        // A `once` job that runs in a killed runner is unknown when the batch is resumed.
        let query = "SELECT command FROM jobs LEFT JOIN running ON running.job = jobs.id \
                     WHERE removed IS NULL AND state <> ?3 AND (?1 OR state <> ?4) \
                     AND (?2 OR NOT (state = ?5 OR coalesce(once, 0))) ORDER BY number, jobs.id";
        let [succeeded, failed, unknown] =
            [JobOutcome::Succeeded, JobOutcome::Failed, JobOutcome::Unknown].map(JobOutcome::name);
        let states = params![retry_failed, rerun_unknown, succeeded, failed, unknown];
        let command = |row: &Row<'_>| Ok(bytes(row.get_ref(0)?).unwrap_or_default());
        self.for_each(query, states, command, each)
    }

    /// Returns the note of the last run, which says how its input can be read again.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn input(&self) -> Result<Option<String>, LogError> {
        let read = || match sqlite::version(&self.connection)? {
            ..=1 => Ok(None),
            _ => {
                let query = "SELECT input FROM runs ORDER BY number DESC LIMIT 1";
                let input = self.connection.query_row(query, [], |row| row.get(0)).optional();
                input.map(Option::flatten)
            }
        };
        read().map_err(|error| self.error(error))
    }

    /// Returns jobs, all as of one moment, up to one of which `is_last` is true.
    ///
    /// # Errors
    /// The log cannot be read, or is damaged.
    pub(crate) fn stored(
        &self,
        jobs: impl Iterator<Item = Numbered>,
        mut is_last: impl FnMut(&Job) -> bool,
    ) -> Result<Vec<Job>, LogError> {
        self.guard.begin(&self.connection).map_err(|error| self.error(error))?;
        self.execute("BEGIN")?;
        let read = || {
            let mut read = Vec::new();
            for numbered in jobs {
                let job = self.stored_job(numbered)?;
                let is_last = is_last(&job);
                read.push(job);
                if is_last {
                    break;
                }
            }
            Ok(read)
        };
        let read = read();
        self.execute("COMMIT")?;
        read
    }

    fn stored_job(&self, Numbered { number, row }: Numbered) -> Result<Job, LogError> {
        let query = "SELECT identity, line, name, state = ?2, command, cwd, settings FROM jobs WHERE id = ?1";
        let read = || -> rusqlite::Result<Option<(JobId, Job)>> {
            let mut query = self.connection.prepare_cached(query)?;
            query.query_row(params![row, JobState::SUCCEEDED.name()], stored)
        };
        let read = read().map_err(|error| self.error(error))?;
        let (id, job) = read.ok_or_else(|| LogError::new(&self.path, LogErrorKind::Corrupt))?;
        Ok(job.logged_as(id, number.into()))
    }

    fn execute(&self, statement: &str) -> Result<(), LogError> {
        self.connection.execute_batch(statement).map_err(|error| self.error(error))
    }
}

/// Returns the job of a row. `None`: no version has written that.
fn stored(row: &Row<'_>) -> rusqlite::Result<Option<(JobId, Job)>> {
    let identity = row.get_ref(0)?.as_blob().ok().and_then(|bytes| bytes.try_into().ok());
    let line = row.get::<_, Option<i64>>(1)?.map_or(0, i64::unsigned_abs);
    let name: Option<String> = row.get(2)?;
    let is_over: bool = row.get(3)?;
    let job = if is_over {
        // It never runs again, and an older version may have written it. Other jobs refer to its name.
        let job = Job::new("");
        Some(name.into_iter().fold(job, Job::name))
    } else {
        let settings: Option<String> = row.get(6)?;
        let is_known = settings.as_deref() != Some(UNKNOWN_SETTINGS);
        let (Some(command), current_dir) = (bytes(row.get_ref(4)?), bytes(row.get_ref(5)?)) else {
            return Ok(None);
        };
        is_known
            .then_some(StoredJob { name, command, current_dir, settings })
            .and_then(StoredJob::job)
    };
    let id = identity.map(JobId::from_bytes);
    Ok(id.zip(job.map(|job| job.on_line(line))))
}

fn bytes(value: ValueRef<'_>) -> Option<Vec<u8>> {
    value.as_bytes().ok().map(<[u8]>::to_vec)
}

// A log that is resumed without its input: it has to have all jobs, and they run where they ran.

/// Checks that the batch can go on without its input, and returns the number of its jobs.
///
/// # Errors
/// An older version has written the log, the last run did not read its input to the end, or jobs ran in another
/// directory.
pub(super) fn check_input(connection: &Connection, path: &Path) -> Result<u64, LogError> {
    let sqlite = |error| LogError::sqlite(path, error);
    let kind = match sqlite::version(connection).map_err(sqlite)? {
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

// A log that was made to harm its reader: queries without an end, and values without a measure.

/// The longest value that is read. A command that a system can start is shorter, also quoted.
const MOST_VALUE_BYTES: i32 = 64 << 20;

/// Steps of SQLite's machine between two looks at the bound.
const LOOK: i32 = 10_000;

/// The steps that a query may take, and those that it may take more for each page of the log. A page has fewer than a
/// hundred rows of any table, and a row takes fewer than a hundred steps.
const STEPS: i64 = 10_000_000;
const STEPS_A_PAGE: i64 = 20_000;

/// The bound of the work of a query.
#[derive(Debug)]
struct Guard {
    left: Arc<AtomicI64>,
}

impl Guard {
    /// Refuses a log whose tables are not tables of it, and bounds all queries of the connection.
    fn set(connection: &Connection, path: &Path) -> Result<Guard, LogError> {
        let guard = Guard { left: Arc::new(AtomicI64::new(STEPS)) };
        let left = Arc::clone(&guard.left);
        let is_over = move || left.fetch_sub(i64::from(LOOK), Ordering::Relaxed) < 0;
        let set = || -> rusqlite::Result<bool> {
            connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)?;
            connection.progress_handler(LOOK, Some(is_over))?;
            guard.begin(connection)?;
            has_plain_tables(connection)
        };
        match set() {
            Ok(true) => Ok(guard),
            Ok(false) => Err(LogError::new(path, LogErrorKind::Corrupt)),
            Err(error) => Err(LogError::sqlite(path, error)),
        }
    }

    /// Allows values of any length.
    #[expect(clippy::unused_self, reason = "it is about this guard")]
    fn allow_long_values(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, i32::MAX).map(drop)
    }

    /// Allows the steps of another query.
    fn begin(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.left.store(STEPS, Ordering::Relaxed);
        let pages =
            connection.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))?;
        self.left
            .store(STEPS.saturating_add(pages.saturating_mul(STEPS_A_PAGE)), Ordering::Relaxed);
        Ok(())
    }
}

/// Returns true if every table that is read is one, and not a view or a virtual table, and computes no column.
fn has_plain_tables(connection: &Connection) -> rusqlite::Result<bool> {
    const TABLES: [&str; 5] = ["batch", "runs", "jobs", "running", "attempts"];
    let query = "SELECT count(*) = 1 AND max(type = 'table' AND rootpage > 0) \
                 AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(?1) WHERE hidden <> 0) \
                 FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE";
    let mut query = connection.prepare(query)?;
    for table in TABLES {
        if !query.query_row([table], |row| row.get(0))? {
            return Ok(false);
        }
    }
    Ok(true)
}
