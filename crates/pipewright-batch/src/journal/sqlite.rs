//! The store on a SQLite file: its tables, the steps from each version to the next, and the statements that write.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, TransactionBehavior, params};

use super::JournalMode;
use super::changes::{
    Changes, Description, EndedAttempt, JobChange, NewJob, RunChange, RunningAttempt,
};
use super::error::LogError;
use super::ledger::unix_seconds;
use crate::vocabulary::{AttemptOutcome, Failure};

/// Marks a SQLite file as the log of a batch: "PWbl".
pub(crate) const APPLICATION_ID: i64 = 0x5057_626c;

/// The steps from version 0, an empty file, to the current version. A step never changes after a release.
pub(crate) const STEPS: [&str; 5] = [VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5];

/// The settings of jobs that version 1 has written, which are not known.
pub(crate) const UNKNOWN_SETTINGS: &str = "?";

/// docs/batch-log.md describes every column. Tables are not `STRICT`, which SQLite before 3.37 cannot read. Only row
/// numbers are indexed: an index of random identities would write a page of 4 KiB for each job.
const VERSION_1: &str = "
CREATE TABLE batch (
    id TEXT NOT NULL,
    created REAL NOT NULL,
    tool_version TEXT NOT NULL,
    description TEXT NOT NULL
);
CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    started REAL NOT NULL,
    ended REAL,
    how TEXT,
    exit_code INTEGER,
    slots INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    pid_start INTEGER,
    boot_id TEXT,
    host TEXT,
    cwd TEXT
);
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    identity BLOB NOT NULL,
    number INTEGER NOT NULL,
    line INTEGER,
    name TEXT,
    command TEXT NOT NULL,
    cwd TEXT,
    state TEXT NOT NULL,
    failure TEXT,
    reason TEXT,
    last_attempt INTEGER REFERENCES attempts (id)
);
CREATE TABLE running (
    job INTEGER PRIMARY KEY REFERENCES jobs (id),
    run INTEGER NOT NULL REFERENCES runs (number),
    attempt INTEGER NOT NULL,
    slot INTEGER,
    since REAL NOT NULL,
    once INTEGER NOT NULL
);
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs (id),
    run INTEGER NOT NULL REFERENCES runs (number),
    attempt INTEGER NOT NULL,
    slot INTEGER,
    started REAL NOT NULL,
    elapsed_seconds REAL,
    outcome TEXT NOT NULL,
    code INTEGER,
    signal INTEGER,
    user_seconds REAL,
    system_seconds REAL,
    peak_rss_bytes INTEGER,
    stdout_bytes INTEGER NOT NULL,
    stderr_bytes INTEGER NOT NULL,
    leftovers_killed INTEGER NOT NULL,
    error TEXT,
    output_path TEXT,
    stderr_tail TEXT
);
CREATE VIEW failures AS
    SELECT jobs.number, jobs.name, jobs.command, jobs.state, jobs.failure, jobs.reason,
        attempts.attempt, attempts.code, attempts.signal, attempts.elapsed_seconds, attempts.error,
        attempts.output_path, attempts.stderr_tail
    FROM jobs LEFT JOIN attempts ON attempts.id = jobs.last_attempt
    WHERE jobs.state IN ('failed', 'interrupted', 'unknown', 'refused')
    ORDER BY jobs.number;
";

/// All that jobs need to run again without their input. The default is for the rows that are there: no row is written
/// anew.
const VERSION_2: &str = "
ALTER TABLE jobs ADD COLUMN settings TEXT DEFAULT '?';
ALTER TABLE jobs ADD COLUMN removed INTEGER REFERENCES runs (number);
ALTER TABLE runs ADD COLUMN jobs INTEGER;
ALTER TABLE runs ADD COLUMN input TEXT;
";

/// The nodes of a batch on several machines.
const VERSION_3: &str = "
ALTER TABLE attempts ADD COLUMN node TEXT;
ALTER TABLE runs ADD COLUMN remote INTEGER NOT NULL DEFAULT 0;
";

/// The end of a job is final: whatever the program does, only another attempt can change a failure, and nothing a
/// success.
///
/// A run has an identity of its own, by which the processes of its jobs are found.
const VERSION_4: &str = "
ALTER TABLE runs ADD COLUMN id TEXT;
CREATE TRIGGER jobs_end BEFORE UPDATE OF state ON jobs
WHEN OLD.state <> NEW.state AND (OLD.state = 'succeeded' OR OLD.state IN ('failed', 'unknown')
    AND NEW.state <> 'started' AND NEW.last_attempt IS OLD.last_attempt)
BEGIN SELECT RAISE(ABORT, 'the end of a job is final'); END;
";

/// The process of a job that runs: one that has become another user's may outlive its runner, and shows no environment.
///
/// The command of each run.
const VERSION_5: &str = "
ALTER TABLE runs ADD COLUMN command TEXT;
ALTER TABLE running ADD COLUMN pid INTEGER;
ALTER TABLE running ADD COLUMN pid_start INTEGER;
";

/// Returns the version of the file. 0: it is empty.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Brings the file to the last version, in one transaction. Does nothing if it has it.
pub(crate) fn migrate(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let version = usize::try_from(version(connection)?).unwrap_or(0);
    let missing = steps.get(version..).unwrap_or_default();
    if missing.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    for step in missing {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", steps.len() as i64)?;
    transaction.commit()
}

// The store on a SQLite file.

/// The time that a call waits for another program that has locked the file, before it fails.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// The pages of the write-ahead log after which its contents move to the file.
const PAGES_BEFORE_CHECKPOINT: i64 = 4000;

/// A connection that writes a log.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    pub(super) connection: Connection,
    path: PathBuf,
}

/// Opens an existing file for reading and writing.
///
/// The connection has no lock of its own: one thread uses it at a time.
pub(crate) fn open_to_write(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    prepare(&connection)?;
    // A reader, too, may move what a runner has written into the file.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // On macOS a plain fsync does not reach the disk.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    Ok(connection)
}

/// Sets what every connection has.
pub(crate) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(LOCK_WAIT)?;
    // A log may come from elsewhere: its views and triggers may only call harmless functions.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // References are checked by tests. A check at each insert would cost a lookup.
    connection.pragma_update(None, "foreign_keys", false)?;
    // Finds damage when a page is read, before it spreads.
    connection.pragma_update(None, "cell_size_check", true)
}

/// Chooses where changes go first, and returns the mode.
///
/// A write-ahead log has its index in memory that all users of the file share. Another machine does not share it.
pub(crate) fn set_journal_mode(
    connection: &Connection,
    is_remote: bool,
) -> rusqlite::Result<JournalMode> {
    connection.pragma_update(None, "wal_autocheckpoint", PAGES_BEFORE_CHECKPOINT)?;
    if !is_remote && ask_for_mode(connection, "wal")? {
        return Ok(JournalMode::WriteAhead);
    }
    // DELETE does not make the removal of its file durable, and a file that returns after a power cut undoes a commit.
    ask_for_mode(connection, "truncate")?;
    Ok(if is_remote { JournalMode::RollbackOnNetwork } else { JournalMode::Rollback })
}

fn ask_for_mode(connection: &Connection, mode: &str) -> rusqlite::Result<bool> {
    let set = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    let found = connection.pragma_update_and_check(None, "journal_mode", mode, set)?;
    Ok(found == mode)
}

impl SqliteStore {
    pub(crate) fn new(connection: Connection, path: &Path) -> SqliteStore {
        SqliteStore { connection, path: path.to_owned() }
    }

    fn write(&mut self, changes: &Changes) -> rusqlite::Result<()> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        write_changes(&transaction, changes)?;
        transaction.commit()
    }
}

impl Store for SqliteStore {
    fn commit(&mut self, changes: &Changes) -> Result<(), LogError> {
        self.write(changes).map_err(|error| LogError::sqlite(&self.path, error))?;
        #[cfg(test)]
        super::watched::note(&self.path, &self.connection);
        Ok(())
    }
}

/// Writes changes within a transaction. All statements give the same rows if they run twice.
pub(crate) fn write_changes(connection: &Connection, changes: &Changes) -> rusqlite::Result<()> {
    for job in &changes.jobs {
        insert_job(connection, job)?;
    }
    for (row, change) in &changes.updates {
        update_job(connection, *row, change)?;
    }
    for job in &changes.over {
        connection.prepare_cached("DELETE FROM running WHERE job = ?1")?.execute([job])?;
    }
    for attempt in changes.running.values() {
        insert_running(connection, attempt)?;
    }
    for (job, process) in &changes.processes {
        let update = "UPDATE running SET pid = ?2, pid_start = ?3 WHERE job = ?1";
        let mut update = connection.prepare_cached(update)?;
        update.execute(params![job, process.pid, signed(process.start)])?;
    }
    for attempt in &changes.attempts {
        insert_attempt(connection, attempt)?;
    }
    write_input(connection, changes)?;
    if let Some(slots) = changes.slots {
        let update = "UPDATE runs SET slots = max(slots, ?2) WHERE number = ?1";
        connection.prepare_cached(update)?.execute(slots)?;
    }
    changes.run.as_ref().map_or(Ok(()), |run| end_run(connection, run))
}

fn insert_job(connection: &Connection, job: &NewJob) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        // No REPLACE: it would overwrite a row without its trigger.
        "INSERT INTO jobs (id, identity, number, line, name, command, cwd, state, failure, reason, last_attempt, \
         settings) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT (id) DO UPDATE SET \
         number = ?3, line = ?4, state = ?8, failure = ?9, reason = ?10, last_attempt = ?11",
    )?;
    let change = &job.change;
    insert.execute(params![
        job.row,
        job.id.to_bytes(),
        signed(change.number),
        change.line.map(signed),
        job.name,
        Bytes(&job.command),
        job.current_dir.as_deref().map(Bytes),
        change.state.name(),
        change.state.failure().map(Failure::name),
        change.reason,
        change.last_attempt.map(signed),
        job.settings,
    ])?;
    Ok(())
}

fn update_job(connection: &Connection, row: u32, change: &JobChange) -> rusqlite::Result<()> {
    let mut update = connection.prepare_cached(
        "UPDATE jobs SET number = ?2, line = ?3, state = ?4, failure = ?5, reason = ?6, \
         last_attempt = coalesce(?7, last_attempt) WHERE id = ?1",
    )?;
    update.execute(params![
        row,
        signed(change.number),
        change.line.map(signed),
        change.state.name(),
        change.state.failure().map(Failure::name),
        change.reason,
        change.last_attempt.map(signed),
    ])?;
    Ok(())
}

fn insert_running(connection: &Connection, attempt: &RunningAttempt) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO running (job, run, attempt, slot, since, once, pid, pid_start) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let RunningAttempt { job, run, attempt, slot, since, once, process } = attempt;
    let (pid, start) = process.map(|it| (it.pid, signed(it.start))).unzip();
    insert.execute(params![job, run, attempt, slot, since, once, pid, start])?;
    Ok(())
}

fn insert_attempt(connection: &Connection, attempt: &EndedAttempt) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO attempts (id, job, run, attempt, slot, started, elapsed_seconds, outcome, code, \
         signal, \
         user_seconds, system_seconds, peak_rss_bytes, stdout_bytes, stderr_bytes, leftovers_killed, error, \
         output_path, \
         stderr_tail, node) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, \
         ?19, ?20)",
    )?;
    let end = &attempt.end;
    // Nobody knows how long one took whose runner was killed.
    let elapsed = (end.outcome != AttemptOutcome::Interrupted).then_some(end.elapsed);
    insert.execute(params![
        signed(attempt.row),
        attempt.job,
        attempt.run,
        end.key.attempt,
        attempt.slot,
        unix_seconds(end.started),
        elapsed.map(|time| time.as_secs_f64()),
        end.outcome.name(),
        end.outcome.code(),
        end.outcome.signal(),
        end.user.map(|time| time.as_secs_f64()),
        end.system.map(|time| time.as_secs_f64()),
        end.peak_rss_bytes.map(signed),
        signed(end.stdout_bytes),
        signed(end.stderr_bytes),
        end.leftovers_killed,
        end.outcome.reason(),
        attempt.output_path.as_deref().map(Bytes),
        attempt.stderr_tail,
        end.node,
    ])?;
    Ok(())
}

/// Writes which jobs the input has, and its end.
fn write_input(connection: &Connection, changes: &Changes) -> rusqlite::Result<()> {
    for Description { row, number, line, name, command, settings } in &changes.described {
        let update = "UPDATE jobs SET number = ?2, line = ?3, name = ?4, settings = ?5, command = ?6, removed = NULL \
                      WHERE id = ?1";
        let (number, line, command) = (signed(*number), line.map(signed), Bytes(command));
        let values = params![row, number, line, name, settings, command];
        connection.prepare_cached(update)?.execute(values)?;
    }
    for removed in &changes.removed {
        let update = "UPDATE jobs SET removed = ?2 WHERE id = ?1";
        connection.prepare_cached(update)?.execute(*removed)?;
    }
    if let Some((run, jobs)) = changes.input_end {
        let update = "UPDATE runs SET jobs = ?2 WHERE number = ?1";
        connection.prepare_cached(update)?.execute((run, signed(jobs)))?;
    }
    Ok(())
}

fn end_run(connection: &Connection, run: &RunChange) -> rusqlite::Result<()> {
    let mut update = connection
        .prepare_cached("UPDATE runs SET ended = ?2, exit_code = ?3, how = ?4 WHERE number = ?1")?;
    update.execute(params![run.run, run.ended, run.exit_code, run.how])?;
    Ok(())
}

/// Returns the number as SQLite has it: signed. No count here comes near the limit.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Bytes that are mostly text. Text that is not UTF-8 would be an error for many readers, so it is a blob.
struct Bytes<'a>(&'a [u8]);

impl ToSql for Bytes<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let is_text = std::str::from_utf8(self.0).is_ok() && !self.0.contains(&0);
        let value = if is_text { ValueRef::Text(self.0) } else { ValueRef::Blob(self.0) };
        Ok(ToSqlOutput::Borrowed(value))
    }
}

// The storage behind the log, as the writer sees it.

/// The storage behind the log.
pub(crate) trait Store {
    /// Writes all changes in one transaction, and returns when they are durable.
    ///
    /// # Errors
    /// Nothing was written, or everything was and that is not certain. The caller repeats the call with the same
    /// changes.
    fn commit(&mut self, changes: &Changes) -> Result<(), LogError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_brought_to_the_last_one_and_keeps_its_rows() {
        let steps = [
            "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)",
            "ALTER TABLE t ADD COLUMN b TEXT",
            "UPDATE t SET b = 'new' WHERE b IS NULL",
        ];
        for from in 0..=3 {
            let mut file = Connection::open_in_memory().unwrap();
            migrate(&mut file, &steps[..from]).unwrap();
            assert_eq!(version(&file).unwrap(), from as i64);
            migrate(&mut file, &steps).unwrap();
            migrate(&mut file, &steps).unwrap();
            assert_eq!(version(&file).unwrap(), 3);
            let row =
                file.query_row("SELECT a, b FROM t", [], |row| Ok((row.get(0)?, row.get(1)?)));
            assert_eq!(row.unwrap(), (1, "new".to_owned()));
        }
    }

    #[test]
    fn whoever_may_move_a_log_into_its_file_does_it_as_durably() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("run.db");
        std::fs::write(&path, "").unwrap();
        let connection = open_to_write(&path).unwrap();
        let set = ["synchronous", "fullfsync", "checkpoint_fullfsync"].map(|name| {
            connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap()
        });
        assert_eq!(set, [2, 1, 1]);
    }

    #[test]
    fn a_failed_step_changes_nothing() {
        let mut file = Connection::open_in_memory().unwrap();
        migrate(&mut file, &["CREATE TABLE t (a)"]).unwrap();
        let steps = ["", "CREATE TABLE u (a)", "CREATE TABLE t (a)"];
        assert!(migrate(&mut file, &steps).is_err());
        assert_eq!(version(&file).unwrap(), 1);
        let tables = "SELECT count(*) FROM sqlite_schema";
        assert_eq!(file.query_row(tables, [], |row| row.get(0)), Ok(1));
    }
}
