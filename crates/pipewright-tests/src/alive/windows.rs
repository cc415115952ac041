//! The answers of process handles, and the marks that puppets hold.

use std::fs::{self, OpenOptions};
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use pipewright_os::base::signal::Signal;
use pipewright_os::process::open::Opened;

/// Returns true if a process with that pid runs.
pub fn is_running(pid: u32) -> bool {
    Opened::open(pid).is_ok_and(|process| process.member().is_alive())
}

/// Returns false: Windows has no zombies.
pub fn is_zombie(_: u32) -> bool {
    false
}

/// Returns `R` if the process runs.
pub fn state(pid: u32) -> Option<char> {
    is_running(pid).then_some('R')
}

/// Each puppet holds a file that no other process can open while it runs ([`hold_marks`]).
pub(super) fn with_variable(variable: &str, value: &str) -> Vec<u32> {
    let marks = fs::read_dir(directory(variable, value)).into_iter().flatten().flatten();
    let is_held = |mark: &fs::DirEntry| fs::remove_file(mark.path()).is_err();
    let pid = |mark: fs::DirEntry| mark.file_name().to_str()?.parse().ok();
    marks.filter(is_held).filter_map(pid).collect()
}

/// Holds a file for each variable that is a mark, until this process (a puppet) ends.
pub fn hold_marks() {
    for (variable, value) in std::env::vars() {
        if variable.starts_with("PIPEWRIGHT_") && variable.ends_with("_TEST") {
            let directory = directory(&variable, &value);
            fs::create_dir_all(&directory).expect("a directory for marks");
            let mut alone = OpenOptions::new();
            alone.write(true).create(true).share_mode(0);
            let mark = alone.open(directory.join(std::process::id().to_string()));
            std::mem::forget(mark.expect("a mark"));
        }
    }
}

fn directory(variable: &str, value: &str) -> PathBuf {
    std::env::temp_dir().join("pipewright-marks").join(format!("{variable}={value}"))
}

/// Terminates the process; an ended process ignores it.
pub(super) fn kill_now(pid: u32) {
    let _ = Opened::open(pid).map(|process| process.signal(Signal::KILL));
}
