//! The null device and the console, as handles.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;

use std::io;

use crate::handle::Handle;

/// Opens the null device for reading and writing.
///
/// # Platform
/// Unix: `/dev/null`.
///
/// # Errors
/// The device is missing or there is no room for another handle.
///
/// ```
/// let null = pipewright_os::stdio::null()?;
/// # let _ = null;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn null() -> io::Result<Handle> {
    imp::null()
}

/// Writes to this process's own stdout or stderr, past any buffer, and waits where it is
/// non-blocking and full.
///
/// # Errors
/// Nobody reads it any more, or it is closed.
pub fn write_console(to_stderr: bool, bytes: &[u8]) -> io::Result<()> {
    imp::write_console(to_stderr, bytes)
}

/// A copy of this process's own stdin.
///
/// # Errors
/// stdin is closed, or there is no room for another handle.
pub fn console_in() -> io::Result<Handle> {
    imp::console(0)
}

/// A copy of this process's own stdout.
///
/// # Errors
/// stdout is closed, or there is no room for another handle.
pub fn console_out() -> io::Result<Handle> {
    imp::console(1)
}

/// A copy of this process's own stderr.
///
/// # Errors
/// stderr is closed, or there is no room for another handle.
pub fn console_err() -> io::Result<Handle> {
    imp::console(2)
}
