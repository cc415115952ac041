//! The schema of the log, and the steps from each version to the next.

use rusqlite::{Connection, TransactionBehavior};

/// Marks a SQLite file as the log of a batch: "PWbl".
pub(crate) const APPLICATION_ID: i64 = 0x5057_626c;

/// The steps from version 0, an empty file, to the current version. A step never changes after a release.
pub(crate) const STEPS: [&str; 5] = [VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5];

/// The settings of jobs that version 1 has written, which are not known.
pub(crate) const UNKNOWN_SETTINGS: &str = "?";

/// docs/batch-log.md describes every column. Tables are not `STRICT`, which SQLite before 3.37 cannot read. Only row numbers are
/// indexed: an index of random identities would write a page of 4 KiB for each job.
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

/// All that jobs need to run again without their input. The default is for the rows that are there: no row is written anew.
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

/// The end of a job is final: whatever the program does, only another attempt can change a failure, and nothing a success.
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
