//! Files of other users among those that keep output beside a log.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use pipewright_tests::skip;

use super::super::kept::{KeepBeside, Kept};
use super::Source;

const OTHER: u32 = 65_533;

/// Returns the files beside a log, as they were left by a run that printed nothing.
fn place(folder: &Path) -> KeepBeside {
    let log = folder.join("run.db");
    fs::write(&log, "").unwrap();
    KeepBeside { log, batch_id: "0123456789abcdef0123456789abcdef".to_owned(), is_resumed: true }
}

fn beside(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("run.db-output-{number}"))
}

/// Writes a file with an output of that batch.
fn forge(path: &Path, place: &KeepBeside) {
    let mut bytes = [b"PWbout1\n", place.batch_id.as_bytes()].concat();
    let mut header = [0_u8; 32];
    header[0] = b'R';
    header[8] = 1;
    header[16] = 4;
    header[24..].copy_from_slice(&(5_u64 ^ 0x5057_6f75_7470_7574).to_le_bytes());
    bytes.extend(header);
    bytes.extend(b"lie\n");
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn outputs_that_others_could_have_written_are_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let (place, file) = (place(folder.path()), beside(folder.path(), 1));
    // Of this user: it is read.
    forge(&file, &place);
    assert_eq!(Kept::open(place.clone()).unwrap().1.len(), 1);
    // Others may write to it, or it has another name in a folder of theirs.
    fs::set_permissions(&file, Permissions::from_mode(0o622)).unwrap();
    let error = Kept::open(place.clone()).map(drop).unwrap_err().to_string();
    assert!(error.contains("run.db-output-1") && error.contains("can be written"), "{error}");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&file, folder.path().join("second")).unwrap();
    let error = Kept::open(place.clone()).map(drop).unwrap_err().to_string();
    assert!(error.contains("has 2 names"), "{error}");
    // A link, a pipe and a folder were never made by a run. They are neither opened nor in the way.
    fs::rename(&file, folder.path().join("target")).unwrap();
    symlink(folder.path().join("target"), &file).unwrap();
    let made = Command::new("mkfifo").arg(beside(folder.path(), 2)).status().unwrap();
    assert!(made.success());
    fs::create_dir(beside(folder.path(), 3)).unwrap();
    let (kept, left) = Kept::open(place).unwrap();
    assert_eq!((left.len(), kept.close()), (0, 0));
    assert!(fs::symlink_metadata(&file).unwrap().is_symlink());
}

#[test]
fn outputs_of_another_user_are_not_printed_and_not_in_the_way() {
    if !skip::is_root() {
        return skip::skipped(skip::Need::Root, "needs root, to make files of another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let (place, file) = (place(folder.path()), beside(folder.path(), 1));
    forge(&file, &place);
    chown(&file, Some(OTHER), Some(OTHER)).unwrap();
    assert_eq!(Kept::open(place.clone()).unwrap().1.len(), 0);
    // Where the log is his, so are its outputs, and those that root adds.
    chown(&place.log, Some(OTHER), Some(OTHER)).unwrap();
    assert_eq!(Kept::open(place.clone()).unwrap().1.len(), 1);
    fs::remove_file(file).unwrap();
    let kept = Kept::open(place).unwrap().0;
    kept.add(2, Source::Stdout, 0, |write| write(b"")).unwrap();
    let entries =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    let owners: Vec<u32> = entries.map(|found| found.uid()).collect();
    assert_eq!(owners, [OTHER; 2]);
}
