//! Whether a process is there.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub use windows::*;

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
