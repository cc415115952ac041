//! What this machine offers, and which handles this process has.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(unix)]
mod told;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

#[cfg(all(windows, feature = "tokio"))]
pub(crate) use windows::has_wait_packets;
#[cfg(all(windows, test))]
pub(crate) use windows::own_handle_count;
#[cfg(windows)]
pub(crate) use windows::{system, wine};

use std::io;

use crate::handle::HandleKind;

/// One facility of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facility {
    /// Its name, as the manual has it.
    pub name: &'static str,
    /// What was found.
    pub state: State,
    /// What it is used for, and so what is lost without it.
    pub used_for: &'static str,
}

/// What was found of a facility.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It works; with a detail worth knowing.
    Available(String),
    /// It does not, and why.
    Missing(String),
    /// It is a figure, not a yes or no.
    Value(String),
}

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

/// Tries every facility that this family of crates can use.
///
/// # Platform
/// Everywhere: makes the calls themselves, each in a way that changes nothing.
#[must_use]
pub fn facilities() -> Vec<Facility> {
    imp::facilities()
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

/// How many processors the machine has on-line, whichever of them this process may use: another process may
/// run on the others.
///
/// # Platform
/// Unix: `sysconf(_SC_NPROCESSORS_ONLN)`. Windows: what std tells of this process.
#[must_use]
pub fn processors() -> usize {
    imp::processors()
}
