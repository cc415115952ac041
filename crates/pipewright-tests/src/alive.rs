//! Facts about other processes: running, zombie, parent.

use std::fs;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(windows)]
use windows as imp;

#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(target_os = "macos")]
pub use macos::*;
#[cfg(windows)]
pub use windows::*;

/// The value of a variable that marks the processes of a test ([`marked`]). Another run of the same suite has
/// other values.
pub fn mark(value: &str) -> String {
    format!("{value}-{}", std::process::id())
}

/// Returns the running processes that were started with that [`mark`] in their environment. On Windows: the
/// puppets.
///
/// Finds every process that a test has started, directly or not, even if its parents have exited.
pub fn marked(variable: &str, value: &str) -> Vec<u32> {
    imp::with_variable(variable, &mark(value))
}

/// Kills a process of a test, by its recorded number.
pub fn kill(pid: u32) {
    drop(KillOnDrop(pid));
}

/// Kills a process of a test, by its recorded number, when dropped.
#[derive(Debug)]
pub struct KillOnDrop(pub u32);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        kill_now(self.0);
    }
}

/// Sends SIGKILL; an ended process ignores it.
#[cfg(unix)]
fn kill_now(pid: u32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// The answers of `/proc`.
#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use pipewright_os::process::environ::has_variable;

    /// Returns true if a process has that pid and is not a zombie.
    pub fn is_running(pid: u32) -> bool {
        matches!(state(pid), Some(state) if state != 'Z' && state != 'X')
    }

    /// Returns true if the process with that pid is a zombie.
    pub fn is_zombie(pid: u32) -> bool {
        state(pid) == Some('Z')
    }

    /// Returns the state letter of `/proc/PID/stat` (proc(5)).
    pub fn state(pid: u32) -> Option<char> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The process's name in it may be any bytes.
        String::from_utf8_lossy(&stat).rsplit_once(')')?.1.trim_start().chars().next()
    }

    pub(super) fn with_variable(variable: &str, value: &str) -> Vec<u32> {
        let pids = fs::read_dir("/proc").expect("/proc is there").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| has_variable(*pid, variable, value).unwrap() && is_running(*pid))
            .collect()
    }

    /// Returns the supervisors and guards below that process.
    pub fn supervisors(host: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut parents = vec![host];
        while let Some(parent) = parents.pop() {
            for child in children_of(parent) {
                let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
                if name.trim_end() == "pw-supervisor" {
                    found.push(child);
                    parents.push(child);
                }
            }
        }
        found
    }

    /// Returns the parent of that process.
    pub fn parent(pid: u32) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    }

    /// Returns true if `pid` is a child of `parent`.
    pub fn is_child_of(pid: u32, parent: u32) -> bool {
        children_of(parent).contains(&pid)
    }

    fn children_of(pid: u32) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        lists
            .flat_map(|list| {
                list.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>()
            })
            .collect()
    }
}

/// The answers of `ps`, which every macOS has.
#[cfg(target_os = "macos")]
mod macos {
    use std::process::{Command, Stdio};

    use pipewright_os::process::environ::has_variable;

    /// A line of `ps`.
    struct Row {
        pid: u32,
        parent: u32,
        state: char,
    }

    /// Returns all processes.
    fn rows() -> Vec<Row> {
        let output = Command::new("/bin/ps")
            .args(["-axo", "pid=,ppid=,state="])
            .stderr(Stdio::null())
            .output();
        let output = output.expect("every macOS has ps").stdout;
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            let (pid, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some(Row { pid, parent, state: words.next()?.chars().next()? })
        };
        String::from_utf8_lossy(&output).lines().filter_map(row).collect()
    }

    fn row(pid: u32) -> Option<Row> {
        rows().into_iter().find(|row| row.pid == pid)
    }

    /// Returns true if a process has that pid and is not a zombie.
    pub fn is_running(pid: u32) -> bool {
        matches!(state(pid), Some(state) if state != 'Z')
    }

    /// Returns true if the process with that pid is a zombie.
    pub fn is_zombie(pid: u32) -> bool {
        state(pid) == Some('Z')
    }

    /// Returns the state letter (ps(1)): `T` is stopped, and `Z` a zombie.
    pub fn state(pid: u32) -> Option<char> {
        row(pid).map(|row| row.state)
    }

    pub(super) fn with_variable(variable: &str, value: &str) -> Vec<u32> {
        let is_marked =
            |row: &Row| row.state != 'Z' && has_variable(row.pid, variable, value).unwrap();
        rows().into_iter().filter(is_marked).map(|row| row.pid).collect()
    }

    /// Returns none: no supervisor holds a tree here.
    pub fn supervisors(_: u32) -> Vec<u32> {
        Vec::new()
    }

    /// Returns the parent of that process.
    pub fn parent(pid: u32) -> Option<u32> {
        row(pid).map(|row| row.parent)
    }

    /// Returns true if `pid` is a child of `parent`.
    pub fn is_child_of(pid: u32, parent: u32) -> bool {
        row(pid).is_some_and(|row| row.parent == parent)
    }

    /// Returns the children of a process, zombies included, and without the `ps` that tells them.
    pub(crate) fn children_of(pid: u32) -> Vec<u32> {
        let rows = rows();
        let children = rows.iter().filter(|row| row.parent == pid).map(|row| row.pid);
        // The call above is over, so that its process has been reaped.
        children.filter(|child| state(*child).is_some()).collect()
    }
}

/// The answers of process handles, and the marks that puppets hold.
#[cfg(windows)]
mod windows {
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
}

/// Returns the control groups of the trees of a process, of all versions, and those in them. Empty if none are mounted.
#[must_use]
pub fn cgroups_made_by(host: u32) -> Vec<PathBuf> {
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
