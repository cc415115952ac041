//! Files that are no log, or none that this version can use. None is changed.

use std::fs;

use rusqlite::Connection;

use super::*;
use crate::journal::schema::STEPS;

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
    journal.intend(&intent(logged(2, &job), 1));
    journal.ended(&end(2, 1, AttemptOutcome::Exited(1)), LoggedOutput::default());
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
