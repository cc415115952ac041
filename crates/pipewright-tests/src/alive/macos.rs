//! The answers of `ps`, which every macOS has.

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
    let output =
        Command::new("/bin/ps").args(["-axo", "pid=,ppid=,state="]).stderr(Stdio::null()).output();
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
    let is_marked = |row: &Row| row.state != 'Z' && has_variable(row.pid, variable, value).unwrap();
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

/// Sends SIGKILL; an ended process ignores it.
pub(super) fn kill_now(pid: u32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
