//! Files of other users in the place of a log, or beside it: refused before SQLite opens anything.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

use pipewright_os::base::private_file::Facts;
use pipewright_test_macros::isolated_test;
use pipewright_tests::skip;
use pipewright_tests::watchdog::in_a_fork;

use super::*;
use crate::journal::files::{Claim, LOCK, beside};

const OTHER: u32 = 65_533;
const VICTIM: u32 = 65_534;

/// A folder in which every user may make files, such as `/tmp`, with a log that has ended.
fn sticky() -> Folder {
    let folder = Folder::new();
    fs::set_permissions(folder.0.path(), Permissions::from_mode(0o1777)).unwrap();
    let mut journal = create(&folder.log());
    succeed(&mut journal, 1);
    journal.close(Some(0), "finished").unwrap();
    folder
}

fn error(path: &Path) -> LogError {
    Journal::resume(path, &facts(), no_waker()).map(drop).unwrap_err()
}

#[track_caller]
fn is_untrusted(error: &LogError, file: &Path, words: &str) {
    let found =
        matches!(error.kind(), LogErrorKind::Untrusted { file: found, .. } if found == file);
    assert!(found && error.to_string().contains(words), "{error}");
}

/// Makes a file that another user could have made, and returns what the error says about it.
type Plant = fn(&Path) -> &'static str;

const PLANTS: [(&str, Plant); 5] = [
    ("writable", |path| {
        fs::write(path, "x").unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
        "can be written by other users"
    }),
    ("a link", |path| {
        symlink(path.with_file_name("target"), path).unwrap();
        "is not a regular file"
    }),
    ("a second name", |path| {
        let own = path.with_file_name("own");
        fs::write(&own, "x").unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(own, path).unwrap();
        "has 2 names"
    }),
    ("a folder", |path| {
        fs::create_dir(path).unwrap();
        "is not a regular file"
    }),
    ("a pipe", |path| {
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
        "is not a regular file"
    }),
];

#[test]
fn a_planted_file_beside_a_log_is_refused_before_it_is_opened() {
    for suffix in ["-wal", "-shm", "-journal", LOCK] {
        for (name, plant) in PLANTS {
            let folder = sticky();
            let file = beside(&folder.log(), suffix);
            let _ = fs::remove_file(&file);
            let words = plant(&file);
            let before = fs::symlink_metadata(&file).unwrap();
            is_untrusted(&error(&folder.log()), &file, words);
            is_untrusted(&Log::open(&folder.log()).map(drop).unwrap_err(), &file, words);
            let after = fs::symlink_metadata(&file).unwrap();
            assert_eq!((before.ino(), before.len()), (after.ino(), after.len()), "{name}{suffix}");
            assert!(!folder.0.path().join("target").exists(), "{name}{suffix}");
        }
    }
}

/// The commands of another user's log would run as this one.
#[test]
fn the_write_ahead_log_of_another_user_is_refused() {
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "needs root, to make files of another user");
    }
    let folder = sticky();
    let before = fs::read(folder.log()).unwrap();
    let planted = Folder::new();
    let mut journal = create(&planted.log());
    (1..=9).for_each(|number| succeed(&mut journal, number));
    journal.flush().unwrap();
    let file = beside(&folder.log(), "-wal");
    fs::copy(beside(&planted.log(), "-wal"), &file).unwrap();
    chown(&file, Some(OTHER), Some(OTHER)).unwrap();
    is_untrusted(&error(&folder.log()), &file, "belongs to user 65533");
    assert!(fs::read(folder.log()).unwrap() == before);
    fs::remove_file(file).unwrap();
    assert_eq!(resume(&folder.log()).1.len(), 1);
}

#[test]
fn a_creation_refuses_what_is_there() {
    for suffix in ["-wal", "-shm", "-journal"] {
        let folder = Folder::new();
        let file = beside(&folder.log(), suffix);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        let error = Journal::create(&folder.log(), &facts(), no_waker()).unwrap_err();
        assert_eq!(*error.kind(), LogErrorKind::Leftover { file }, "{error}");
        assert!(!folder.log().exists());
    }
    let folder = Folder::new();
    let lock = beside(&folder.log(), LOCK);
    symlink(folder.0.path().join("target"), &lock).unwrap();
    let error = Journal::create(&folder.log(), &facts(), no_waker()).unwrap_err();
    is_untrusted(&error, &lock, "is not a regular file");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1);
    // A link in the place of the log is not followed either.
    symlink(folder.0.path().join("target"), folder.log()).unwrap();
    let error = Journal::create(&folder.log(), &facts(), no_waker()).unwrap_err();
    assert_eq!(*error.kind(), LogErrorKind::Exists);
    assert!(!folder.0.path().join("target").exists());
}

#[test]
fn the_log_of_another_user_needs_an_option() {
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "needs root, to make files of another user");
    }
    let folder = sticky();
    for file in [folder.log(), beside(&folder.log(), LOCK)] {
        chown(file, Some(OTHER), Some(OTHER)).unwrap();
    }
    let refused = error(&folder.log());
    is_untrusted(&refused, &folder.log(), "belongs to user 65533");
    assert!(refused.to_string().ends_with("--trust-log allows it"), "{refused}");
    assert_eq!(Log::open(&folder.log()).unwrap().counts().unwrap().of(JobState::SUCCEEDED), 1);
    let trusting = RunFacts { trust_log: true, ..facts() };
    let (journal, past) = Journal::resume(&folder.log(), &trusting, no_waker()).unwrap();
    assert_eq!(past.len(), 1);
    // His own later use of it is not in danger: what root makes is his.
    for suffix in ["-wal", "-shm", LOCK] {
        let found = fs::metadata(beside(&folder.log(), suffix)).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (OTHER, 0o600), "{suffix}");
    }
    journal.close(None, "finished").unwrap();
}

#[test]
fn a_log_that_others_may_write_needs_an_option() {
    let folder = sticky();
    fs::set_permissions(folder.log(), Permissions::from_mode(0o620)).unwrap();
    is_untrusted(&error(&folder.log()), &folder.log(), "can be written by other users");
    let trusting = RunFacts { trust_log: true, ..facts() };
    Journal::resume(&folder.log(), &trusting, no_waker()).unwrap();
}

#[test]
fn the_files_of_a_log_are_private_and_so_is_an_old_lock() {
    let folder = sticky();
    let lock = beside(&folder.log(), LOCK);
    fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
    let (mut journal, _) = resume(&folder.log());
    succeed(&mut journal, 2);
    journal.flush().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder.0.path())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{entry:?}");
            entry.file_name().into_string().unwrap()
        })
        .collect();
    names.sort();
    assert_eq!(names, ["run.db", "run.db-lock", "run.db-shm", "run.db-wal"]);
}

#[test]
fn a_log_in_a_sticky_folder_works_for_its_owner_alone() {
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "needs root, to run as other users");
    }
    let folder = Folder::new();
    fs::set_permissions(folder.0.path(), Permissions::from_mode(0o1777)).unwrap();
    let user = |id: u32| format!("--reuid={id} --regid={id} --clear-groups");
    let start = |id, act| {
        let options = user(id);
        let words: Vec<_> = std::iter::once("setpriv").chain(options.split(' ')).collect();
        act::start(&words, act, &folder.log())
    };
    if installed(Command::new("setpriv").arg("--version")).is_none() {
        return;
    }
    let mut owner = start(VICTIM, "keep");
    let said = owner.line();
    if said.is_none() {
        return skip::skipped(skip::Need::PublicTarget, "other users cannot run this test program");
    }
    assert_eq!(said.as_deref(), Some("ready"));
    owner.kill();
    // His write-ahead log is there.
    let refused = start(OTHER, "resume").line().unwrap();
    assert!(
        refused.contains("cannot open log") || refused.contains("belongs to user"),
        "{refused}"
    );
    assert_eq!(start(VICTIM, "resume").line().as_deref(), Some("resumed"));
    assert!(!beside(&folder.log(), "-journal").exists());
}

/// A lock that another user could hold would keep the owner from his own batch.
#[test]
fn nobody_else_can_open_the_lock() {
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "needs root, to run as another user");
    }
    let folder = sticky();
    let read =
        Command::new("cat").arg(beside(&folder.log(), LOCK)).as_user(OTHER).output().unwrap();
    assert!(!read.status.success());
}

trait AsUser {
    fn as_user(&mut self, user: u32) -> &mut Command;
}

impl AsUser for Command {
    fn as_user(&mut self, user: u32) -> &mut Command {
        std::os::unix::process::CommandExt::uid(self, user);
        std::os::unix::process::CommandExt::gid(self, user)
    }
}

#[isolated_test]
fn a_fork_gives_no_claimed_name_of_its_parent_free() {
    let folder = sticky();
    let journal = beside(&folder.log(), "-journal");
    let found = Facts::look(&folder.log()).unwrap().unwrap();
    let mut claim = Some(Claim::new(&folder.log(), &found).unwrap());
    assert!(journal.exists());
    assert!(in_a_fork(|| drop(claim.take())));
    assert!(journal.exists(), "another user can take the name");
    drop(claim);
    assert!(!journal.exists());
}
