//! The dialogs that a system opens for a program that fails.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

/// Keeps this process, and the children that it starts from now on, from opening a dialog when a library is missing, a program
/// crashes, or a disk is not there: the process ends or gets an error instead of waiting for somebody.
///
/// For a program, not for a library: it changes the whole process.
///
/// # Platform
/// Windows: `SetErrorMode`, which children inherit. Unix: nothing; there are no such dialogs.
#[doc(alias = "SetErrorMode")]
pub fn disable_dialogs() {
    imp::disable_dialogs();
}
