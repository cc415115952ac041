//! The answers of `/proc`.

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
    pids.filter(|pid| has_variable(*pid, variable, value).unwrap() && is_running(*pid)).collect()
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

/// Sends SIGKILL; an ended process ignores it.
pub(super) fn kill_now(pid: u32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
