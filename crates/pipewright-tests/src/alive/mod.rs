//! Facts about other processes: running, zombie, parent.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(target_os = "macos")]
pub use macos::*;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
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
