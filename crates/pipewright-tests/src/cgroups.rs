//! The control groups that a process has made.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the control groups of the trees of a process, of all versions, and those in them. Empty if none are mounted.
#[must_use]
pub fn made_by(host: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    search("/sys/fs/cgroup".as_ref(), &format!("pipewright-{host}-"), false, &mut found);
    found
}

fn search(dir: &Path, name: &str, is_in_one: bool, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let is_one = is_in_one || entry.file_name().to_string_lossy().starts_with(name);
            if is_one {
                found.push(entry.path());
            }
            search(&entry.path(), name, is_one, found);
        }
    }
}
