//! A flag that any thread can raise and a multiplexer can wait for.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(windows)]
pub(crate) use windows::is_signalled;

use std::io;

/// A flag that stays raised once it is raised.
///
/// # Platform
/// Linux: an eventfd. Windows: a manual-reset event. macOS: a pipe, which is readable while the flag is
/// up.
///
/// ```
/// let wake = pipewright_os::wake::Wake::new()?;
/// assert!(!wake.is_raised());
/// wake.raise();
/// assert!(wake.is_raised());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Wake(pub(crate) imp::Wake);

impl Wake {
    /// A flag that is not raised.
    ///
    /// # Errors
    /// No room for another handle.
    pub fn new() -> io::Result<Wake> {
        imp::Wake::new().map(Wake)
    }

    /// Raises the flag; everything that waits for it wakes up. Raising it again does nothing.
    pub fn raise(&self) {
        self.0.raise();
    }

    /// Lowers the flag again.
    pub fn lower(&self) {
        self.0.lower();
    }

    /// Whether the flag is raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.is_raised()
    }
}
