//! Pipes whose bytes are tokens, as in the jobserver protocol of GNU make.
//!
//! Many processes share such a pipe: each takes a byte before it starts a job and puts the same byte back after it.

#[cfg(all(test, unix))]
mod tests;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(not(unix))]
mod unsupported;
#[cfg(not(unix))]
use unsupported as imp;

use std::fmt;
use std::io;
use std::path::Path;

use crate::base::handle::Handle;
use crate::base::wake::{EventSource, WaitEvent};

/// Both ends of a pipe whose bytes are tokens.
///
/// No call blocks, and none changes the open file of another process: see [`open`](Self::open) and
/// [`from_numbers`](Self::from_numbers).
///
/// As an event, it has happened while a token can be taken.
///
/// # Platform
/// Windows: there are no such pipes. Every function that makes one fails (`Unsupported`).
pub struct TokenPipe(imp::Ends);

impl TokenPipe {
    /// Opens a FIFO by its name.
    ///
    /// # Platform
    /// Unix: `open(O_RDWR | O_NONBLOCK)`. The open file is ours alone, so its mode affects no other process.
    ///
    /// # Errors
    /// There is no such file, it is not a FIFO (`InvalidInput`), or it cannot be opened. Windows: `Unsupported`.
    pub fn open(path: &Path) -> io::Result<TokenPipe> {
        imp::open(path).map(TokenPipe)
    }

    /// Duplicates the ends of a pipe that this process has under these numbers: handles that a parent passed on.
    ///
    /// # Platform
    /// Linux: a take is a read as [`PipeReader::try_read_spare`](crate::base::pipe::PipeReader::try_read_spare) makes
    /// it, which leaves the blocking mode of the shared open file alone. macOS: such a read follows a `poll`, and
    /// blocks if another process takes the last token in between.
    ///
    /// # Errors
    /// A number is not open (`EBADF`), not the right end of a pipe, or (Linux) the two are not ends of the same pipe
    /// (`InvalidInput`). Windows: `Unsupported`.
    pub fn from_numbers(read: i32, write: i32) -> io::Result<TokenPipe> {
        imp::from_numbers(read, write).map(TokenPipe)
    }

    /// Returns true if a parent passed both handles on: exec closes neither of them. What this process has opened
    /// itself may have the same numbers, but exec closes it.
    ///
    /// # Errors
    /// A number is not open (`EBADF`). Windows: `Unsupported`.
    pub fn are_inherited(read: i32, write: i32) -> io::Result<bool> {
        imp::are_inherited(read, write)
    }

    /// Takes a token, if there is one.
    ///
    /// # Errors
    /// The errors of `read`; `UnexpectedEof` if nothing can ever write a token again.
    pub fn try_take(&self) -> io::Result<Option<u8>> {
        imp::try_take(&self.0)
    }

    /// Puts a token back.
    ///
    /// # Errors
    /// The errors of `write`; `WouldBlock` if the pipe is full.
    pub fn put(&self, token: u8) -> io::Result<()> {
        imp::put(&self.0, token)
    }

    /// Returns the number of tokens that can be taken now.
    ///
    /// # Errors
    /// The errors of `ioctl(FIONREAD)`.
    pub fn count(&self) -> io::Result<usize> {
        imp::count(&self.0)
    }
}

impl WaitEvent for TokenPipe {
    fn source(&self) -> EventSource<'_> {
        imp::source(&self.0)
    }

    fn has_happened(&self) -> bool {
        self.count().map_or(true, |count| count > 0)
    }
}

impl fmt::Debug for TokenPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenPipe").field(&self.count().ok()).finish()
    }
}

/// A new FIFO in a folder of its own, which only this user can open.
///
/// # Platform
/// Unix: `mkdir` (0700), `mkfifo` (0600), and a lock on the folder (`flock`).
///
/// # Drop
/// Removes the FIFO and the folder. If this process is killed, they stay until the next [`create`](Self::create) with
/// the same folder and prefix: that removes each folder of this user which no living process has locked.
///
/// ```
/// # use pipewright_os::base::token_pipe::{NamedFifo, TokenPipe};
/// # if cfg!(windows) { return Ok(()); }
/// let fifo = NamedFifo::create(&std::env::temp_dir(), "example-")?;
/// let tokens = TokenPipe::open(fifo.path())?;
/// assert_eq!(tokens.try_take()?, None);
/// tokens.put(b'+')?;
/// assert_eq!(tokens.try_take()?, Some(b'+'));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct NamedFifo(imp::Named);

impl NamedFifo {
    /// Creates a FIFO in a new folder in `parent`, whose name begins with `prefix`.
    ///
    /// # Errors
    /// The folder, the FIFO or the lock cannot be made. Windows: `Unsupported`.
    pub fn create(parent: &Path, prefix: &str) -> io::Result<NamedFifo> {
        imp::create(parent, prefix).map(NamedFifo)
    }

    /// Returns the path of the FIFO.
    #[must_use]
    pub fn path(&self) -> &Path {
        imp::path(&self.0)
    }

    /// Opens an end for reading and one for writing, both in blocking mode, which children can inherit.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn ends(&self) -> io::Result<(Handle, Handle)> {
        imp::ends(&self.0)
    }
}

impl fmt::Debug for NamedFifo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedFifo").field(&self.path()).finish()
    }
}
