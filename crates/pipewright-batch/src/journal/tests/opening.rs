//! Logs that are not opened as they are: files of another kind, damaged or crafted ones, and those that another runner
//! has.

use std::fs;

use pipewright_test_macros::watched_test;
use rusqlite::Connection;

use super::*;
#[cfg(unix)]
use crate::journal::files::LOCK;
use crate::journal::files::beside;
use crate::journal::sqlite::STEPS;
use crate::view::{JobFilter, LogView};

/// Checks that the file is refused to a runner and to a reader, and not changed.
fn refused(path: &Path, kind: LogErrorKind) {
    let before = fs::read(path).ok();
    let error = Journal::resume(path, &facts(), no_waker()).unwrap_err();
    assert_eq!(*error.kind(), kind, "{error}");
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() < 300 && text.contains("run.db"), "{text}");
    assert_eq!(*Log::open(path).unwrap_err().kind(), kind);
    assert_eq!(fs::read(path).ok(), before);
}

/// Makes a log with some jobs.
fn sample(path: &Path) {
    let mut journal = create(path);
    (1..=1000).for_each(|number| succeed(&mut journal, number));
    journal.close(Some(0), "finished").unwrap();
}

#[test]
fn a_log_that_exists_is_not_created_again() {
    let folder = Folder::new();
    sample(&folder.log());
    let before = fs::read(folder.log()).unwrap();
    let error = Journal::create(&folder.log(), &facts(), no_waker()).unwrap_err();
    assert_eq!(*error.kind(), LogErrorKind::Exists);
    assert!(error.to_string().ends_with("exists: use --resume, or another log"), "{error}");
    assert_eq!(fs::read(folder.log()).unwrap(), before);
}

#[test]
fn a_missing_log_is_an_error_with_its_cause() {
    let folder = Folder::new();
    refused(&folder.log(), LogErrorKind::Missing);
    let inside = folder.0.path().join("no folder/run.db");
    let error = Journal::create(&inside, &facts(), no_waker()).unwrap_err();
    assert_eq!(*error.kind(), LogErrorKind::NoDirectory);
    let source = std::error::Error::source(&error).unwrap();
    let source = source.downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_folder_is_refused() {
    let folder = Folder::new();
    fs::create_dir(folder.log()).unwrap();
    refused(&folder.log(), LogErrorKind::NotAFile);
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let folder = Folder::new();
    fs::write(folder.log(), "a text that is no database\n".repeat(100)).unwrap();
    refused(&folder.log(), LogErrorKind::NotALog);
}

#[test]
fn a_database_of_another_application_is_refused() {
    let folder = Folder::new();
    let other = Connection::open(folder.log()).unwrap();
    other
        .execute_batch(
            "PRAGMA journal_mode=wal; CREATE TABLE jobs (id); INSERT INTO jobs VALUES (1)",
        )
        .unwrap();
    drop(other);
    refused(&folder.log(), LogErrorKind::NotALog);
}

#[test]
fn a_newer_log_is_refused() {
    let folder = Folder::new();
    sample(&folder.log());
    let newer = Connection::open(folder.log()).unwrap();
    newer.pragma_update(None, "user_version", STEPS.len() as i64 + 1).unwrap();
    drop(newer);
    refused(&folder.log(), LogErrorKind::Newer { version: STEPS.len() as i64 + 1 });
}

#[test]
fn a_damaged_log_is_refused() {
    let folder = Folder::new();
    sample(&folder.log());
    let whole = fs::read(folder.log()).unwrap();
    // The last page has rows of a table; the end of the file is missing, or is something else.
    let cut = &whole[..whole.len() / 2];
    let mut overwritten = whole.clone();
    overwritten[4096..].fill(0xa5);
    for damaged in [cut, &overwritten] {
        fs::write(folder.log(), damaged).unwrap();
        let error = Journal::resume(&folder.log(), &facts(), no_waker()).unwrap_err();
        assert_eq!(*error.kind(), LogErrorKind::Corrupt, "{error}");
        assert_eq!(fs::read(folder.log()).unwrap(), damaged);
    }
}

#[test]
fn a_log_with_other_words_is_refused() {
    for change in
        ["state = 'happy'", "identity = x'00'", "identity = (SELECT max(identity) FROM jobs)"]
    {
        let folder = Folder::new();
        sample(&folder.log());
        let other = Connection::open(folder.log()).unwrap();
        other.execute_batch(&format!("DROP TRIGGER jobs_end; UPDATE jobs SET {change}")).unwrap();
        drop(other);
        let before = fs::read(folder.log()).unwrap();
        let error = Journal::resume(&folder.log(), &facts(), no_waker()).unwrap_err();
        assert_eq!(*error.kind(), LogErrorKind::Corrupt, "{change}: {error}");
        assert_eq!(fs::read(folder.log()).unwrap(), before);
        if change.starts_with("state") {
            let log = Log::open(&folder.log()).unwrap();
            let read = log.for_each_job(None, |_| std::ops::ControlFlow::Continue(()));
            let words = ": a newer version has written the state \"happy\"";
            let error = read.unwrap_err().to_string();
            assert!(error.starts_with("cannot use log") && error.ends_with(words), "{error}");
            assert!(!error.contains("index"), "{error}");
        }
    }
}

#[test]
fn an_empty_log_is_damaged_and_does_not_begin_anew() {
    for bytes in [0, 1] {
        let folder = Folder::new();
        sample(&folder.log());
        fs::OpenOptions::new().write(true).open(folder.log()).unwrap().set_len(bytes).unwrap();
        refused(&folder.log(), LogErrorKind::Corrupt);
    }
}

#[test]
fn a_log_without_its_version_is_damaged() {
    let folder = Folder::new();
    sample(&folder.log());
    let old = Connection::open(folder.log()).unwrap();
    old.pragma_update(None, "user_version", 0).unwrap();
    drop(old);
    refused(&folder.log(), LogErrorKind::Corrupt);
}

#[test]
fn names_with_special_characters_are_opened() {
    let folder = Folder::new();
    for name in ["a b?mode=ro#x%41.db", "ü.db", "-x", ":memory:", "file:a"] {
        let path = folder.0.path().join(name);
        if cfg!(windows) && name.contains(['?', ':']) {
            continue;
        }
        create(&path).close(None, "finished").unwrap();
        assert!(path.is_file(), "{name}");
        let (mut journal, _) = resume(&path);
        succeed(&mut journal, 1);
        journal.close(None, "finished").unwrap();
        assert_eq!(
            Log::open(&path).unwrap().counts().unwrap().of(JobState::SUCCEEDED),
            1,
            "{name}"
        );
    }
}

#[test]
fn a_closed_log_is_one_file_and_its_lock() {
    let folder = Folder::new();
    sample(&folder.log());
    let mut names: Vec<_> = fs::read_dir(folder.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["run.db", "run.db-lock"]);
    // Programs without a write-ahead log can identify it.
    let header = fs::read(folder.log()).unwrap();
    assert_eq!(&header[68..72], b"PWbl");
}

/// Uses a folder that this process must not write.
pub(super) fn use_read_only_folder(log: &Path) {
    let folder = log.parent().unwrap();
    if fs::write(folder.join("probe"), "").is_ok() {
        return act::say("may write");
    }
    assert_eq!(Log::open(log).unwrap().counts().unwrap().of(JobState::SUCCEEDED), 1000);
    let created = Journal::create(&folder.join("new.db"), &facts(), no_waker()).unwrap_err();
    assert_eq!(*created.kind(), LogErrorKind::ReadOnly, "{created}");
    let resumed = Journal::resume(log, &facts(), no_waker()).unwrap_err();
    assert!(matches!(resumed.kind(), LogErrorKind::Open | LogErrorKind::ReadOnly), "{resumed}");
    act::say("done");
}

#[cfg(unix)]
#[test]
fn a_log_in_a_folder_without_the_right_to_write_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    sample(&folder.log());
    let set =
        |mode| fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(mode)).unwrap();
    set(0o555);
    let may_write = fs::write(folder.0.path().join("root"), "").is_ok();
    // Root without capabilities has the rights of the owner only.
    let without: &[&str] = match may_write {
        true => &["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
        false => &[],
    };
    let is_there = std::process::Command::new("setpriv").arg("--version").output().is_ok();
    let said =
        (!may_write || is_there).then(|| act::start(without, "read-only", &folder.log()).line());
    set(0o755);
    match said {
        None => skipped(Need::Program("setpriv"), "there is no setpriv here"),
        Some(said) => assert_eq!(said.as_deref(), Some("done")),
    }
}

#[test]
fn the_database_itself_refuses_to_change_an_end() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    succeed(&mut journal, 1);
    let job = job(2);
    journal.ledger.intend(&intent(logged(2, &job), 1));
    journal.ledger.ended(&end(2, 1, AttemptOutcome::Exited(1)), LoggedOutput::default());
    let failed = JobState::failed(crate::vocabulary::Failure::ExitCode);
    journal.settled(&logged(2, &job), failed, None);
    journal.close(Some(123), "finished").unwrap();
    let connection = rusqlite::Connection::open(folder.log()).unwrap();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    let change = |state: &str, number: u32, attempt: &str| {
        let update = format!(
            "UPDATE jobs SET state = '{state}', last_attempt = {attempt} WHERE number = {number}"
        );
        connection.execute(&update, []).map_err(|error| error.to_string())
    };
    let refused = Err("the end of a job is final".to_owned());
    assert_eq!(change("refused", 1, "last_attempt"), refused);
    assert_eq!(change("started", 1, "9"), refused);
    assert_eq!(change("not_run", 2, "last_attempt"), refused);
    // Another attempt: it begins, or has begun and ended within one commit.
    assert_eq!(change("succeeded", 2, "9"), Ok(1));
}

#[cfg(unix)]
#[test]
fn a_log_that_was_removed_while_the_batch_ran_is_an_error_at_the_end() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    succeed(&mut journal, 1);
    journal.flush().unwrap();
    fs::rename(folder.log(), folder.0.path().join("elsewhere.db")).unwrap();
    let error = journal.close(Some(0), "finished").unwrap_err();
    assert_eq!(*error.kind(), LogErrorKind::Gone);
    assert!(error.to_string().ends_with("was moved or removed while the batch ran"), "{error}");
    // Another file has its name.
    let (log, other) = (folder.0.path().join("b.db"), folder.0.path().join("other"));
    let journal = create(&log);
    fs::write(&other, "").unwrap();
    fs::rename(other, log).unwrap();
    assert_eq!(*journal.close(Some(0), "finished").unwrap_err().kind(), LogErrorKind::Gone);
}

// One runner writes a log at a time.

fn error(path: &Path) -> LogError {
    Journal::resume(path, &facts(), no_waker()).unwrap_err()
}

fn in_use_by(pid: u32) -> LogErrorKind {
    LogErrorKind::InUse { pid: Some(pid), host: pipewright_os::host::host_info::host_name() }
}

#[test]
fn a_second_runner_is_refused_with_the_first_ones_pid() {
    let folder = Folder::new();
    let mut runner = act::start(&[], "keep", &folder.log());
    assert_eq!(runner.line().as_deref(), Some("ready"));
    let pid = runner.child.id();
    let error = error(&folder.log());
    assert_eq!(*error.kind(), in_use_by(pid));
    assert!(error.to_string().starts_with(&format!("process {pid} on ")), "{error}");
    let created = Journal::create(&folder.log(), &facts(), no_waker()).unwrap_err();
    assert_eq!(*created.kind(), LogErrorKind::Exists);
    // The first one's end makes room.
    runner.kill();
    resume(&folder.log()).0.close(None, "finished").unwrap();
}

#[test]
fn two_runners_in_one_process_are_refused_too() {
    let folder = Folder::new();
    let journal = create(&folder.log());
    assert_eq!(*error(&folder.log()).kind(), in_use_by(std::process::id()));
    drop(journal);
    resume(&folder.log());
}

// An open file cannot be removed on Windows.
#[cfg(unix)]
#[test]
fn a_runner_is_found_though_its_lock_was_removed() {
    let folder = Folder::new();
    let mut runner = act::start(&[], "keep", &folder.log());
    assert_eq!(runner.line().as_deref(), Some("ready"));
    fs::remove_file(beside(&folder.log(), LOCK)).unwrap();
    assert_eq!(*error(&folder.log()).kind(), in_use_by(runner.child.id()));
    runner.kill();
    resume(&folder.log());
}

#[cfg(unix)]
#[test]
fn another_process_with_the_runners_number_does_not_block() {
    for change in ["boot_id = 'another boot'", "host = 'elsewhere'", "pid_start = pid_start + 1"] {
        let folder = Folder::new();
        let mut runner = act::start(&[], "keep", &folder.log());
        assert_eq!(runner.line().as_deref(), Some("ready"));
        fs::remove_file(beside(&folder.log(), LOCK)).unwrap();
        let connection = rusqlite::Connection::open(folder.log()).unwrap();
        assert_eq!(connection.execute(&format!("UPDATE runs SET {change}"), []), Ok(1));
        drop(connection);
        resume(&folder.log());
    }
}

#[test]
fn runners_that_start_at_once_agree_on_one() {
    let folder = Folder::new();
    create(&folder.log()).close(None, "finished").unwrap();
    for _ in 0..20 {
        let start = std::sync::Barrier::new(4);
        let kept: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        Journal::resume(&folder.log(), &facts(), no_waker())
                            .map_err(|it| it.kind().clone())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let won = kept.iter().filter(|it| it.is_ok()).count();
        assert_eq!(won, 1);
        let lost = kept.iter().filter_map(|it| it.as_ref().err());
        assert!(
            lost.clone().all(|it| matches!(it, LogErrorKind::InUse { .. })),
            "{:?}",
            lost.collect::<Vec<_>>()
        );
    }
}

// Logs that somebody has made to harm their reader.

/// Makes a log, and runs statements on its file.
fn crafted(folder: &Folder, statements: &str) {
    let mut journal = create(&folder.log());
    (1..=3).for_each(|number| succeed(&mut journal, number));
    journal.close(Some(0), "finished").unwrap();
    let connection = Connection::open(folder.log()).unwrap();
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    connection.execute_batch(statements).unwrap();
}

/// Reads everything that `pipewright jobs` reads.
fn read_all(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let view = LogView::open(path)?;
    let filters = [JobFilter::default(), JobFilter { slowest: Some(3), ..JobFilter::default() }];
    for filter in filters {
        view.write_json(&filter, &mut std::io::sink())?;
        view.write_table(&filter, Some(80), &mut std::io::sink())?;
    }
    view.summary()?;
    view.page()?;
    view.write_new(0, None, &mut std::io::sink())?;
    Ok(())
}

/// A reader writes nothing to a file that it refuses, and asks it nothing: it ends, under the watchdog.
#[watched_test]
fn a_table_that_is_a_view_is_refused() {
    const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    for statements in [
        format!(
            "ALTER TABLE jobs RENAME TO old; CREATE VIEW jobs AS {ENDLESS} SELECT old.* FROM old, n"
        ),
        format!(
            "ALTER TABLE runs RENAME TO old; CREATE VIEW runs AS {ENDLESS} SELECT old.* FROM old, n"
        ),
        // Its last row is known only after all others.
        format!(
            "DROP TABLE runs; CREATE VIEW runs AS {ENDLESS} SELECT i AS number, 1 AS pid, 1 AS pid_start, 1 AS \
             boot_id, 1 AS host, 1 AS ended FROM n"
        ),
        "ALTER TABLE attempts ADD COLUMN computed AS (hex(zeroblob(500000000)))".to_owned(),
        "DROP TABLE running".to_owned(),
    ] {
        let folder = Folder::new();
        crafted(&folder, &statements);
        let error = Log::open(&folder.log()).unwrap_err();
        assert_eq!(*error.kind(), LogErrorKind::Corrupt, "{statements}: {error}");
    }
}

#[test]
fn a_file_that_is_refused_stays_as_it_is_and_gets_none_beside_it() {
    for (change, kind) in [
        ("PRAGMA application_id = 7", LogErrorKind::NotALog),
        ("PRAGMA user_version = 99", LogErrorKind::Newer { version: 99 }),
    ] {
        let folder = Folder::new();
        crafted(&folder, change);
        // Its last change is in the write-ahead log, as after a kill of its program.
        let (log, wal) = (folder.log(), beside(&folder.log(), "-wal"));
        let connection = Connection::open(&log).unwrap();
        connection.execute_batch("UPDATE runs SET ended = 1").unwrap();
        let bytes = [&log, &wal].map(|file| fs::read(file).unwrap());
        drop(connection);
        let files = [&log, &wal].into_iter().zip(&bytes);
        files.for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
        assert_eq!(*Log::open(&log).unwrap_err().kind(), kind);
        assert_eq!([&log, &wal].map(|file| fs::read(file).unwrap()), bytes, "{change}");
        assert!(!beside(&log, "-shm").exists(), "{change}");
    }
}

#[test]
fn a_value_without_a_measure_is_refused() {
    let folder = Folder::new();
    crafted(&folder, "UPDATE jobs SET command = zeroblob(200000000) WHERE id = 2");
    let error = read_all(&folder.log()).unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
}

/// A page that many others refer to makes a small file of rows without an end.
#[test]
fn a_tree_of_pages_that_repeats_itself_ends() {
    let folder = Folder::new();
    let mut journal = create(&folder.log());
    (1..=60_000).for_each(|number| succeed(&mut journal, number));
    journal.close(Some(0), "finished").unwrap();
    let mut bytes = std::fs::read(folder.log()).unwrap();
    let connection = Connection::open(folder.log()).unwrap();
    let root: u32 = connection
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'attempts'", [], |row| {
            row.get(0)
        })
        .unwrap();
    drop(connection);
    // Each interior page leads to one child only: its cells, and its last pointer.
    let number =
        |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut page = root as usize;
    let mut levels = 0;
    loop {
        let start = (page - 1) * 4096;
        if bytes[start] != 5 {
            break;
        }
        levels += 1;
        let cells = usize::from(u16::from_be_bytes([bytes[start + 3], bytes[start + 4]]));
        let child = number(&bytes, start + 8);
        for cell in 0..cells {
            let at = start + 12 + 2 * cell;
            let at = start + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
            bytes[at..at + 4].copy_from_slice(&child.to_be_bytes());
        }
        page = child as usize;
    }
    assert!(levels >= 2, "{levels}");
    std::fs::write(folder.log(), bytes).unwrap();
    // The result does not matter, only that there is one.
    let _ = read_all(&folder.log());
}

#[test]
fn numbers_that_no_clock_has_are_no_panic() {
    for seconds in ["9.3e18", "1e308", "-9.3e18", "9e999", "-1", "1e-320"] {
        let folder = Folder::new();
        crafted(
            &folder,
            &format!(
                "UPDATE attempts SET elapsed_seconds = {seconds}; UPDATE attempts SET started = {seconds} WHERE id = \
                 2; \
                 UPDATE runs SET started = {seconds}; UPDATE batch SET created = {seconds}; \
                 UPDATE jobs SET number = 9223372036854775807 WHERE id = 3; \
                 INSERT INTO running VALUES (3, 1, 4294967295, 4294967295, {seconds}, 0, -1, 9223372036854775807)"
            ),
        );
        read_all(&folder.log()).unwrap();
        let log = Log::open(&folder.log()).unwrap();
        assert_eq!(log.counts().unwrap().jobs, 3);
    }
    let folder = Folder::new();
    crafted(&folder, "UPDATE runs SET number = 4294967295");
    let error = Journal::resume(&folder.log(), &facts(), no_waker()).map(drop).unwrap_err();
    assert_eq!(*error.kind(), LogErrorKind::Corrupt);
}
