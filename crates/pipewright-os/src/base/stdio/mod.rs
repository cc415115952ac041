//! The null device and the console, as handles.

#[cfg(feature = "tokio")]
mod task;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(all(windows, feature = "process"))]
pub(crate) use windows::standard;

use std::io;

use crate::base::handle::Handle;
use crate::base::pipe::PipeWriter;

#[cfg(feature = "tokio")]
pub use task::{AsyncStdin, AsyncStdout, stderr_async, stdin_async, stdout_async};

/// Opens the null device for reading and writing.
///
/// # Platform
/// Unix: `/dev/null`. Windows: `\\.\NUL`.
///
/// # Errors
/// The device is missing or there is no room for another handle.
///
/// ```
/// # use pipewright_os::base::stdio::null;
/// let nothing = null()?;
/// # let _ = nothing;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn null() -> io::Result<Handle> {
    imp::null()
}

/// This process's own stdout or stderr, to write to without being held up by whoever reads it: where
/// [`has_room`](PipeWriter::has_room) says yes, `try_write` does not block. `None`: it is closed.
///
/// What std has buffered does not come through here.
///
/// # Platform
/// `O_NONBLOCK` belongs to the open file, which others share: the shell that started us would find
/// its terminal non-blocking. Linux: a pipe or terminal is opened anew through `/proc/self/fd`, which
/// makes an open file of our own, with `O_NONBLOCK`. Where that cannot be had (no `/proc`, a terminal
/// of another user, a socket, macOS) a copy of the handle is written to in pieces of at most
/// `PIPE_BUF` bytes (4096; macOS 512), for which there is room once `poll` says so, unless somebody else fills
/// it in that moment. That is no promise of terminals, which call themselves writable with less room:
/// one that is stopped can then hold us up. A file is written to as it is: a disk is waited for.
///
/// Windows: a copy of the handle. What writes to a pipe or a console is a thread of the copy's own, after
/// what std has buffered for stdout; `has_room` says no. A wait that ends before the write cancels it
/// (`CancelSynchronousIo`); that to a console in which somebody marks text goes on, and is what the next
/// wait for the same bytes waits for. A file is written to as it is. Bytes are passed on as they are: a
/// console shows them in its code page, as it does those of the child.
///
/// # Errors
/// No room for another handle.
pub fn console_writer(to_stderr: bool) -> io::Result<Option<PipeWriter>> {
    imp::console_writer(to_stderr)
}

/// A writer to that file, pipe or terminal, as [`console_writer`] gives one to ours.
///
/// # Platform
/// As [`console_writer`].
///
/// # Errors
/// No room for another handle.
pub fn writer_to(target: Handle) -> io::Result<PipeWriter> {
    imp::writer_to(target)
}

/// A copy of this process's own stdin.
///
/// # Platform
/// Windows: `GetStdHandle`, `DuplicateHandle`; so for the other two.
///
/// # Errors
/// stdin is closed, or there is none (a program without a console), or there is no room for another handle.
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
