//! Creating a log, and resuming one.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pipewright_os::base::private_file::{self, Facts, PrivateLock, real_path};
use pipewright_os::host::network::is_network_filesystem;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior, params};
use tempfile::{Builder, NamedTempFile};

use super::changes::{Changes, EndedAttempt, JobChange};
use super::error::{LogError, LogErrorKind};
use super::files::{self, Claim, check_file, check_header, check_names, open_error};
use super::ledger::{JobState, Ledger, Numbers, system_time, unix_seconds};
use super::past::{Entries, Entry, Past};
use super::runner::{self, Runner};
use super::sqlite::{self, STEPS, SqliteStore};
use super::survivors::{self, LeftJob};
use super::writer::{self, Queue};
use super::{Journal, JournalMode, RunFacts, Waker, read};
use crate::job::JobId;
use crate::vocabulary::{AttemptEnd, AttemptKey, AttemptOutcome};

/// The end of a run whose runner was killed. The next runner writes it: this one had no time to.
pub(super) const INTERRUPTED: &str = "interrupted";

impl Journal {
    /// Creates a log for a new batch.
    ///
    /// # Errors
    /// The file exists ([`LogErrorKind::Exists`]), or cannot be created. Then nothing is left behind but the file of
    /// the lock.
    pub(crate) fn create(path: &Path, facts: &RunFacts, waker: Waker) -> Result<Journal, LogError> {
        let path = &real_path(path).map_err(|error| LogError::creation(path, error))?;
        if Facts::look(path).map_err(|error| LogError::creation(path, error))?.is_some() {
            return Err(LogError::new(path, LogErrorKind::Exists));
        }
        files::check_free(path)?;
        let new = NewLog::make(path, facts)?;
        let lock = take_lock(path, &new.facts)?;
        let opened = Opened { facts: new.facts, lock, new: Some(new.batch_id.clone()) };
        new.publish(path)?;
        let begun = begin(path, facts, opened, waker);
        begun.map(|(journal, _)| journal).inspect_err(|_| remove(path))
    }

    /// Returns true if no file has that name.
    ///
    /// # Errors
    /// The system does not say.
    pub(crate) fn is_missing(path: &Path) -> Result<bool, LogError> {
        match real_path(path).and_then(|path| Facts::look(&path)) {
            Ok(facts) => Ok(facts.is_none()),
            // Its directory is missing, which is the error of its creation.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(LogError::io(path, error)),
        }
    }

    /// Opens the log of an earlier run, to continue its batch.
    ///
    /// Attempts that the log has as running are ended as `interrupted`; the jobs are then [`JobState::Interrupted`], or
    /// [`JobState::UNKNOWN`] if they must not run twice.
    ///
    /// # Errors
    /// The file is missing, is no log, is damaged or newer, cannot be trusted, or another runner uses it. Then the file
    /// is unchanged.
    pub(crate) fn resume(
        path: &Path,
        facts: &RunFacts,
        waker: Waker,
    ) -> Result<(Journal, Past), LogError> {
        let path = &files::real(path)?;
        let found = files::check_to_run(path, facts.trust_log)?;
        check_file(path)?;
        let lock = take_lock(path, &found)?;
        check_names(path, &found)?;
        let wal = files::open(path, "-wal", &found)?;
        if wal
            .map_or(Ok(false), files::is_damaged_wal)
            .map_err(|error| LogError::io(path, error))?
        {
            return Err(LogError::new(path, LogErrorKind::Corrupt));
        }
        begin(path, facts, Opened { facts: found, lock, new: None }, waker)
    }
}

/// A log that this runner has locked.
struct Opened {
    facts: Facts,
    lock: PrivateLock,
    /// The identity of the batch, if its log is new.
    new: Option<String>,
}

/// Takes the lock of a runner, which also finds out if the folder can be written.
fn take_lock(path: &Path, log: &Facts) -> Result<PrivateLock, LogError> {
    let lock = files::beside(path, files::LOCK);
    match PrivateLock::take(&lock, log) {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(in_use(path)),
        Err(error) => Err(files::opening(path, &lock, error)),
    }
}

/// Returns the error that names the runner of the log.
fn in_use(path: &Path) -> LogError {
    let runner = read::open_to_read(path).ok().and_then(|connection| {
        // Without an answer the error names no process.
        Runner::last(&connection).ok().flatten()
    });
    let pid = runner.as_ref().map(|runner| runner.pid);
    let host = runner.and_then(|runner| runner.host);
    LogError::new(path, LogErrorKind::InUse { pid, host })
}

/// Opens a file that this runner has locked, writes the beginning of the run, and starts the writer.
fn begin(
    path: &Path,
    facts: &RunFacts,
    opened: Opened,
    waker: Waker,
) -> Result<(Journal, Past), LogError> {
    let sqlite = |error| LogError::sqlite(path, error);
    let claim = Claim::new(path, &opened.facts)?;
    let mut connection = sqlite::open_to_write(path).map_err(|error| open_error(path, error))?;
    // Until the log is found whole, closing it must not move anything into it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(sqlite)?;
    check_header(&connection, path)?;
    files::check_opened(path, &opened.facts, None)?;
    let earlier = match opened.new {
        Some(_) => Earlier::default(),
        None => Earlier::read(&connection, path)?,
    };
    if earlier.runner.as_ref().is_some_and(Runner::runs) {
        return Err(in_use(path));
    }
    let killed = survivors::end_jobs(path, &earlier.left, |killed| {
        let id = connection.query_row("SELECT id FROM batch", [], |row| row.get::<_, String>(0));
        let (id, runs) =
            id.and_then(|id| Ok((id, run_ids(&connection, 0)?.1))).map_err(io::Error::other)?;
        survivors::end_survivors(&id, runs.as_deref(), killed)
    })?;
    let lost_outputs = match opened.new {
        Some(_) => Vec::new(),
        None => runner::lost_outputs(&connection).map_err(sqlite)?,
    };
    let jobs = facts.from_log.then(|| read::check_input(&connection, path)).transpose()?;
    // Before the mode is set: the first page of a log is then in its file, where `check_header` finds it.
    sqlite::migrate(&mut connection, &STEPS).map_err(sqlite)?;
    // A run that was killed, or has lost its nodes, and each one after it that was killed before the nodes had ended.
    let query = "SELECT coalesce(max(remote AND (ended IS NULL OR how = ?1)), 0) FROM runs \
                 WHERE number = (SELECT max(number) FROM runs)";
    let left_nodes = match opened.new {
        // Its first run is this one.
        Some(_) => false,
        None => {
            connection.query_row(query, [super::ABANDONED], |row| row.get(0)).map_err(sqlite)?
        }
    };
    let inherited = RunFacts { remote: facts.remote || left_nodes, ..facts.clone() };
    let facts = &inherited;
    let is_remote = is_network_filesystem(path).unwrap_or(false);
    let mode = sqlite::set_journal_mode(&connection, is_remote).map_err(sqlite)?;
    let last = earlier.runner.as_ref().map_or(0, |runner| runner.run);
    let run = last.checked_add(1).ok_or_else(|| LogError::new(path, LogErrorKind::Corrupt))?;
    let batch_id = match opened.new {
        Some(id) => id,
        None => {
            let runner = Runner::this(run);
            let id = write_beginning(&mut connection, &runner, facts, jobs, &earlier);
            // Ignored: it is tried again later. The file says then that this run has begun, also under another name.
            let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            id.map_err(sqlite)?
        }
    };
    // The first read in this mode opens the files beside the log.
    sqlite::version(&connection).map_err(sqlite)?;
    files::check_opened(path, &opened.facts, Some(mode))?;
    match mode {
        JournalMode::WriteAhead => drop(claim),
        _ => claim.keep(),
    }
    let (run_id, earlier_runs) = run_ids(&connection, run).map_err(sqlite)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(sqlite)?;
    connection.set_prepared_statement_cache_capacity(32);

    let queue = Queue::new(waker);
    #[cfg(test)]
    let queue = super::watched::led(queue, path);
    let queue = Arc::new(queue);
    let store = SqliteStore::new(connection, path);
    let writer = writer::start_writer(store, Arc::clone(&queue))
        .map_err(|error| LogError::io(path, error))?;
    let Earlier { entries, numbers, .. } = earlier;
    let numbers = Numbers { run, ..numbers };
    let mut ledger = Ledger::new(numbers, entries.clone());
    ledger.keep_values = facts.keep_values;
    let journal = Journal {
        ledger,
        queue,
        writer: Some(writer),
        path: path.to_owned(),
        facts: opened.facts,
        batch_id,
        run_id,
        earlier_runs,
        run,
        mode,
        left_nodes,
        killed,
        lost_outputs,
        _lock: opened.lock,
    };
    Ok((journal, Past::new(entries)))
}

/// Returns the identity of this run, and those of the earlier ones; `None`: one of them has none, because an older
/// version ran.
fn run_ids(connection: &Connection, run: u32) -> rusqlite::Result<(String, Option<Vec<String>>)> {
    let mut query = connection.prepare("SELECT number, id FROM runs")?;
    let ids = query.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get(1)?)))?;
    let (mut this, mut earlier) = (String::new(), Some(Vec::new()));
    for found in ids {
        let (number, id): (u32, Option<String>) = found?;
        match id {
            Some(id) if number == run => this = id,
            Some(id) => earlier.iter_mut().for_each(|earlier| earlier.push(id.clone())),
            None => earlier = None,
        }
    }
    Ok((this, earlier))
}

/// Writes that this run has begun, and how the attempts of a killed runner ended.
fn write_beginning(
    connection: &mut Connection,
    runner: &Runner,
    facts: &RunFacts,
    jobs: Option<u64>,
    earlier: &Earlier,
) -> rusqlite::Result<String> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(
        "INSERT INTO batch (id, created, tool_version, description) \
         SELECT lower(hex(randomblob(16))), ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM batch)",
        params![unix_seconds(SystemTime::now()), facts.tool_version, facts.description],
    )?;
    let batch_id =
        transaction.query_row("SELECT id FROM batch LIMIT 1", [], |row| row.get::<_, String>(0))?;
    transaction.execute("UPDATE runs SET how = ?1 WHERE ended IS NULL", [INTERRUPTED])?;
    sqlite::write_changes(&transaction, &earlier.interruptions)?;
    let current_dir = std::env::current_dir().ok();
    runner.insert(&transaction, facts, jobs, current_dir.as_deref())?;
    transaction.commit()?;
    Ok(batch_id)
}

/// Everything of earlier runs that a run needs.
pub(super) struct Earlier {
    runner: Option<Runner>,
    pub(super) entries: Entries,
    pub(super) numbers: Numbers,
    /// The ends of the attempts that a killed runner left.
    pub(super) interruptions: Changes,
    /// The processes of those attempts.
    left: Vec<LeftJob>,
}

impl Default for Earlier {
    fn default() -> Earlier {
        Earlier {
            runner: None,
            entries: Entries::default(),
            numbers: Numbers { run: 1, next_job: 1, next_attempt: 1 },
            interruptions: Changes::default(),
            left: Vec::new(),
        }
    }
}

impl Earlier {
    pub(super) fn read(connection: &Connection, path: &Path) -> Result<Earlier, LogError> {
        let sqlite = |error| LogError::sqlite(path, error);
        let runner = Runner::last(connection).map_err(sqlite)?;
        let last_attempt: i64 = connection
            .query_row("SELECT coalesce(max(id), 0) FROM attempts", [], |row| row.get(0))
            .map_err(sqlite)?;
        let mut next_attempt = u64::try_from(last_attempt).unwrap_or(0) + 1;
        let (interruptions, states) =
            interruptions(connection, &mut next_attempt).map_err(sqlite)?;
        let (entries, next_job) = read_jobs(connection, &states)
            .map_err(sqlite)?
            .ok_or_else(|| LogError::new(path, LogErrorKind::Corrupt))?;
        let numbers = Numbers { run: 1, next_job, next_attempt };
        // The numbers of another machine, and those before a boot, say nothing here.
        let is_here = runner.as_ref().is_some_and(Runner::is_of_this_boot);
        let left =
            if is_here { survivors::jobs_left(connection).map_err(sqlite)? } else { Vec::new() };
        Ok(Earlier { runner, entries, numbers, interruptions, left })
    }
}

/// Returns the ends of the attempts that the log has as running, and the states of their jobs.
fn interruptions(
    connection: &Connection,
    next_attempt: &mut u64,
) -> rusqlite::Result<(Changes, HashMap<u32, JobState>)> {
    let mut query = connection.prepare(
        "SELECT job, run, attempt, slot, since, once, jobs.number, jobs.line \
         FROM running JOIN jobs ON jobs.id = running.job ORDER BY job",
    )?;
    let mut rows = query.query([])?;
    let (mut changes, mut states) = (Changes::default(), HashMap::new());
    while let Some(row) = rows.next()? {
        let job: u32 = row.get(0)?;
        let state = if row.get(5)? { JobState::UNKNOWN } else { JobState::Interrupted };
        let attempt = *next_attempt;
        *next_attempt += 1;
        let number = row.get::<_, i64>(6)?.unsigned_abs();
        let key = AttemptKey { job: number, attempt: row.get(2)? };
        let since = system_time(row.get(4)?);
        changes.end(EndedAttempt {
            row: attempt,
            job,
            run: row.get(1)?,
            slot: row.get(3)?,
            end: AttemptEnd::new(key, AttemptOutcome::Interrupted, since, Duration::ZERO),
            output_path: None,
            stderr_tail: None,
            once: row.get(5)?,
        });
        let line = row.get::<_, Option<i64>>(7)?;
        let change = JobChange {
            number,
            line: line.map(i64::unsigned_abs),
            state,
            reason: None,
            last_attempt: Some(attempt),
        };
        changes.change_job(job, change);
        states.insert(job, state);
    }
    Ok((changes, states))
}

/// Reads all jobs, and the next row. `None`: the contents are not those of a log.
fn read_jobs(
    connection: &Connection,
    interrupted: &HashMap<u32, JobState>,
) -> rusqlite::Result<Option<(Entries, u32)>> {
    let input = match sqlite::version(connection)? {
        ..=1 => "0",
        _ => "removed IS NOT NULL",
    };
    let query =
        format!("SELECT id, identity, state, failure, {input}, number, line, name FROM jobs");
    let mut query = connection.prepare(&query)?;
    let mut rows = query.query([])?;
    let (mut entries, mut next_job) = (Vec::new(), 1);
    while let Some(row) = rows.next()? {
        let number: u32 = row.get(0)?;
        next_job = next_job.max(number.saturating_add(1));
        let identity = row.get_ref(1)?.as_blob().ok().and_then(|bytes| bytes.try_into().ok());
        let state = row.get_ref(2)?.as_str().ok();
        let failure = row.get_ref(3)?.as_str_or_null().ok().flatten();
        let state = state.and_then(|state| JobState::parse(state, failure));
        let (Some(identity), Some(state)) = (identity, state) else { return Ok(None) };
        let state = interrupted.get(&number).copied().unwrap_or(state);
        let entry = Entry::new(JobId::from_bytes(identity), number, state);
        let (number, line) = (row.get::<_, i64>(5)?, row.get::<_, Option<i64>>(6)?);
        let name = row.get_ref(7)?.as_str_or_null().ok().flatten();
        let entry = entry.described(number.unsigned_abs(), line.map(i64::unsigned_abs), name);
        entries.push(entry.removed(row.get(4)?));
    }
    Ok(Entries::new(entries).map(|entries| (entries, next_job)))
}

impl JournalMode {
    /// Returns a line for people if the mode is not the fast one.
    pub(crate) fn notice(self) -> Option<&'static str> {
        match self {
            JournalMode::WriteAhead => None,
            JournalMode::Rollback => Some(
                "this filesystem shares no memory between processes: the log is written more slowly",
            ),
            JournalMode::RollbackOnNetwork => Some(
                "the log is on a network filesystem: it is written more slowly, and no other machine may use it \
                 meanwhile",
            ),
        }
    }
}

// A new log: made whole under another name, durable, and only then visible.
//
// A creation that is killed leaves no log. So an empty file, or one without tables, is always a damaged log, and is
// never taken for a batch that has not begun.

/// A whole log without its name.
///
/// # Drop
/// Removes the file.
pub(super) struct NewLog {
    file: NamedTempFile,
    pub(super) facts: Facts,
    pub(super) batch_id: String,
}

impl NewLog {
    /// Makes the file of a log in the folder of its path, with the beginning of its first run.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub(super) fn make(path: &Path, facts: &RunFacts) -> Result<NewLog, LogError> {
        let (batch_id, image) = image(facts).map_err(|error| LogError::sqlite(path, error))?;
        let write = || {
            let mut prefix = OsString::from(".");
            prefix.push(path.file_name().unwrap_or_default());
            prefix.push("-new-");
            let folder = path.parent().unwrap_or(path);
            let mut file = Builder::new().prefix(&prefix).tempfile_in(folder)?;
            file.write_all(&image)?;
            file.as_file().sync_all()?;
            let facts = Facts::of_file(file.as_file())?;
            Ok(NewLog { file, facts, batch_id })
        };
        write().map_err(|error| LogError::creation(path, error))
    }

    /// Gives the log its name.
    ///
    /// # Errors
    /// Something has it, or the folder cannot be written. Then nothing has the name that did not have it before.
    fn publish(self, path: &Path) -> Result<(), LogError> {
        let folder = path.parent().unwrap_or(path);
        name(self.file, path)
            .and_then(|()| private_file::sync_folder(folder).inspect_err(|_| remove(path)))
            .map_err(|error| LogError::creation(path, error))
    }
}

/// Returns the identity of a batch, and the bytes of its log.
fn image(facts: &RunFacts) -> rusqlite::Result<(String, Vec<u8>)> {
    let mut connection = Connection::open_in_memory()?;
    sqlite::migrate(&mut connection, &STEPS)?;
    let runner = Runner::this(1);
    let id = write_beginning(&mut connection, &runner, facts, None, &Earlier::default())?;
    let image = connection.serialize("main")?.to_vec();
    Ok((id, image))
}

/// Gives the file its name, unless something has it.
fn name(file: NamedTempFile, path: &Path) -> io::Result<()> {
    let failed = match file.persist_noclobber(path) {
        Ok(_) => return Ok(()),
        Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(failed.error);
        }
        Err(failed) => failed,
    };
    // This filesystem has neither second names nor a rename that replaces nothing. A file that takes the name first
    // excludes others. A kill now leaves an empty file, which is refused.
    private_file::create_new(path)?;
    failed.file.persist(path).map(drop).map_err(|failed| {
        remove(path);
        failed.error
    })
}

/// Removes a log that cannot be used, and first what SQLite made beside it: without the log that would be in the way of
/// the next creation.
pub(super) fn remove(path: &Path) {
    // Ignored: the first error is the one to report.
    for suffix in files::OF_SQLITE {
        let _ = fs::remove_file(files::beside(path, suffix));
    }
    let _ = fs::remove_file(path);
}
