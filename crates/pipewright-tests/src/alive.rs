//! Whether a process is there.

use std::fs;

/// Whether a process of that number runs: is there and is no zombie.
pub fn is_running(pid: u32) -> bool {
    matches!(state(pid), Some(state) if state != 'Z' && state != 'X')
}

/// Whether a process of that number is a zombie.
pub fn is_zombie(pid: u32) -> bool {
    state(pid) == Some('Z')
}

/// The state letter of `/proc/PID/stat` (proc(5)).
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Kills a process of a test, by its recorded number, when dropped.
#[derive(Debug)]
pub struct KillOnDrop(pub u32);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0 as i32) {
            // Ignored: it may have ended.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
