//! The open handles of this process.

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
pub(crate) use windows::count as own_handle_count;
#[cfg(all(windows, test))]
pub(crate) use windows::wait_for_fewer as wait_for_fewer_handles;

use std::io;

use super::HandleKind;

/// An open handle of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenHandle {
    /// Its number.
    pub number: i64,
    /// The kind of object that it refers to.
    pub kind: HandleKind,
    /// The name of that object, if it has one.
    pub target: Option<String>,
    /// True if it is inherited by a child whose start lists no handles, and by a program that replaces
    /// this process.
    pub inheritable: bool,
}

/// Returns the open handles of this process, ordered by number.
///
/// # Platform
/// Linux: `/proc/self/fd`. macOS: `proc_pidinfo(PROC_PIDLISTFDS)`, and the names by `F_GETPATH`.
/// Windows: `NtQueryInformationProcess`, or `NtQuerySystemInformation` if that is not supported;
/// the target of a handle that is not a file is its type. A pipe end in a synchronous read on another
/// thread can delay this call until the read ends.
///
/// # Errors
/// The list cannot be read.
pub fn open_handles() -> io::Result<Vec<OpenHandle>> {
    imp::open_handles()
}
