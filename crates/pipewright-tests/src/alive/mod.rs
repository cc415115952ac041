//! Whether a process is there.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(windows)]
pub use windows::*;

/// The value of a variable by which a test finds whom it has started ([`marked`]): another run of the same suite
/// has other values.
pub fn mark(value: &str) -> String {
    format!("{value}-{}", std::process::id())
}

/// The processes that were started with that [`mark`] in their environment, and run. On Windows: the puppets.
///
/// The way to find whoever a test has ever started, whatever became of its parents.
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
