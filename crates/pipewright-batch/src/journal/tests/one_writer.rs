//! One runner writes a log at a time.

#[cfg(unix)]
use std::fs;

use super::*;
#[cfg(unix)]
use crate::journal::files::{LOCK, beside};

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
