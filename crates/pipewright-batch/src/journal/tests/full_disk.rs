//! A full disk: the log fails, keeps everything, and goes on when there is room.

use std::fs;
use std::io::Write as _;

use super::*;
use crate::journal::files::{LOCK, beside};
use crate::journal::tests::act::{say, wait_for_test};
use crate::journal::tests::failing::waker;

/// Creates logs where there is no room, with a page more each time. A failure leaves nothing but the file of the lock, whichever
/// write it was: a `-wal` alone was in the way of every later creation.
fn create_in_vain(log: &Path) {
    let filler = log.with_file_name("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let mut length = file.metadata().unwrap().len();
    let mut failures = 0;
    let journal = loop {
        match Journal::create(log, &facts(), no_waker()) {
            Ok(journal) => break journal,
            Err(_) => failures += 1,
        }
        let entries = fs::read_dir(log.parent().unwrap()).unwrap().flatten();
        let mut left: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        left.retain(|path| *path != filler && *path != beside(log, LOCK));
        assert_eq!(left, [] as [PathBuf; 0], "after {failures} failures");
        length -= 4096;
        file.set_len(length).unwrap();
    };
    assert!(failures > 2, "{failures}");
    file.set_len(0).unwrap();
    journal.close(Some(0), "finished").unwrap();
    for path in [log, &filler] {
        fs::remove_file(path).unwrap();
    }
}

/// Fills the disk through the log, makes room, and closes the log.
pub(super) fn fill(log: &Path) {
    say(format_args!("mounted"));
    create_in_vain(log);
    let filler = log.with_file_name("filler");
    fs::write(&filler, vec![1; 400 << 10]).unwrap();
    let (waker, woken) = waker();
    let mut journal = Journal::create(log, &facts(), waker).unwrap();
    let mut number = 0;
    let failure = loop {
        number += 1;
        succeed(&mut journal, number);
        if journal.flush().is_err() {
            break loop {
                match journal.next_report() {
                    Some(Report::Failed(error)) => break error,
                    Some(other) => panic!("{other:?}"),
                    None => woken.recv().unwrap(),
                }
            };
        }
    };
    say(format_args!("failed {:?}", failure.kind()));
    // The ends of the jobs that run, after the failure.
    for _ in 0..50 {
        number += 1;
        succeed(&mut journal, number);
        journal.submit();
    }
    fs::remove_file(&filler).unwrap();
    while !matches!(journal.next_report(), Some(Report::Works)) {
        woken.recv().unwrap();
    }
    journal.flush().unwrap();
    journal.close(Some(0), "finished").unwrap();
    check_whole(log);
    let log = Log::open(log).unwrap();
    let numbers: Vec<_> =
        attempts(&log, &AttemptFilter::default()).iter().map(|it| it.job.number).collect();
    assert_eq!(numbers, (1..=number).collect::<Vec<_>>());
    assert_eq!(log.counts().unwrap().of(JobState::SUCCEEDED), number);
    say(format_args!("kept {number}"));
    wait_for_test();
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_is_lost_on_a_full_disk() {
    use crate::journal::tests::act;
    let folder = Folder::new();
    // A small disk of its own, which goes with the process.
    let script = format!(
        "mount -t tmpfs -o size=1m none '{0}' || exit 77; exec \"$0\" \"$@\"",
        folder.0.path().display()
    );
    if std::process::Command::new("unshare").arg("--version").output().is_err() {
        return skipped(Need::Program("unshare"), "there is no unshare here");
    }
    // Root needs no namespace of users, which some machines refuse.
    for options in [&["--user", "--map-root-user", "--mount"][..], &["--mount"]] {
        let words = [&["unshare"], options, &["sh", "-c", &script]].concat();
        let mut actor = act::start(&words, "fill", &folder.log());
        if actor.line().is_none() {
            continue;
        }
        assert_eq!(actor.line().as_deref(), Some("failed Full"));
        let kept = actor.line().expect("the log was not whole");
        assert!(kept.starts_with("kept "), "{kept}");
        return;
    }
    skipped(Need::Mount, "no filesystem can be mounted here");
}
