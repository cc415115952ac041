//! The handles that this process has open.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(all(windows, any(feature = "process", test)))]
pub(crate) use windows::count as own_count;

use std::io;

use super::HandleKind;

/// A handle that this process has open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenHandle {
    /// Its number.
    pub number: i64,
    /// What it refers to.
    pub kind: HandleKind,
    /// The name of what it refers to, where there is one.
    pub target: Option<String>,
    /// Whether a program that this process becomes or starts carelessly would get it.
    pub inheritable: bool,
}

/// The handles that this process has open, in the order of their numbers.
///
/// # Platform
/// Linux: `/proc/self/fd`. macOS: `proc_pidinfo(PROC_PIDLISTFDS)`, and the names by `F_GETPATH`.
/// Windows: `NtQueryInformationProcess`, or `NtQuerySystemInformation` where that does not know; the
/// target of what is no file is its type. A pipe end on which another thread is in a synchronous read
/// at this moment can hold this up until that read ends.
///
/// # Errors
/// The list cannot be read.
pub fn open_handles() -> io::Result<Vec<OpenHandle>> {
    imp::open_handles()
}
