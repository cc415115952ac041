//! The facilities of the system that processes, workers and files use.

mod entry;
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

/// One facility of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facility {
    /// Its name, as in the manual.
    pub name: &'static str,
    /// The state that was found.
    pub state: State,
    /// The uses of it.
    pub used_for: &'static str,
    /// The loss without it. Empty for a figure.
    pub without: &'static str,
    /// The call that it needs, and the version of the system that brought it. Empty for a figure.
    pub needs: &'static str,
}

/// The state of a facility.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It works. The text is a detail, such as a path, or empty.
    Available(String),
    /// It does not work, for this reason.
    Missing(String),
    /// It is a value, such as a limit, and cannot be missing.
    Value(String),
}

/// Tries every facility that this family of crates can use.
///
/// # Platform
/// Everywhere: makes the calls themselves, each in a way that changes nothing.
#[must_use]
pub fn facilities() -> Vec<Facility> {
    imp::facilities()
}
