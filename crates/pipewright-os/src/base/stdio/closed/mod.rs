//! Standard streams that were closed when this process started.
//!
//! std opens the null device for each of them before `main`, and reports a read or a write of a closed stream as a success. So a
//! program cannot find out later, and its children would write to the null device: output is lost, and every exit code is 0.

use std::io::{self, Read, Write};

#[cfg(not(all(unix, feature = "closed-stdio")))]
mod other;
#[cfg(not(all(unix, feature = "closed-stdio")))]
use other as imp;
#[cfg(all(unix, feature = "closed-stdio"))]
mod unix;
#[cfg(all(unix, feature = "closed-stdio"))]
use unix as imp;

/// Returns true if that standard stream (0 to 2) was closed when this process started.
///
/// # Platform
/// Unix, with the feature `closed-stdio`: `fcntl(F_GETFD)`, before std opens the null device. Elsewhere false.
#[must_use]
pub fn was_closed(number: u8) -> bool {
    imp::was_closed(number)
}

/// Returns true if SIGPIPE was ignored when this process started. std ignores it before `main` in any case.
///
/// # Platform
/// Unix, with the feature `closed-stdio`: `sigaction`, before std sets it. Elsewhere false.
#[must_use]
pub fn was_pipe_ignored() -> bool {
    imp::was_pipe_ignored()
}

/// Makes the streams that were closed at the start fail again, in this process and in the children that inherit them. Call
/// it at the start of `main`, before any thread starts.
///
/// # Platform
/// Unix: the null device takes their numbers, opened so that reads or writes fail with `EBADF`, and closed on exec. So no
/// file that is opened later gets one of the numbers.
///
/// # Errors
/// The null device cannot be opened.
pub fn keep_closed() -> io::Result<()> {
    imp::keep_closed()
}

/// Returns the error of a closed stream if that standard stream (0 to 2) was closed when this process started.
///
/// # Errors
/// Unix: `EBADF`.
pub fn fail_if_closed(number: u8) -> io::Result<()> {
    if was_closed(number) { Err(imp::closed_error()) } else { Ok(()) }
}

/// Returns this process's stdout as a writer that fails if it was closed at the start. That of std succeeds.
#[must_use]
pub fn stdout() -> OwnStdout {
    OwnStdout(io::stdout())
}

/// Returns this process's stdin as a reader that fails if it was closed at the start. That of std finds the end of the input.
#[must_use]
pub fn stdin() -> OwnStdin {
    OwnStdin(io::stdin())
}

/// The stdout of this process: see [`stdout`].
#[derive(Debug)]
pub struct OwnStdout(io::Stdout);

/// The stdin of this process: see [`stdin`].
#[derive(Debug)]
pub struct OwnStdin(io::Stdin);

impl Write for OwnStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        fail_if_closed(1)?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Read for OwnStdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        fail_if_closed(0)?;
        self.0.read(buffer)
    }
}
