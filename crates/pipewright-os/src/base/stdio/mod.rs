//! The null device and the standard streams, as handles.

mod closed;
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

pub use closed::{
    OwnStdin, OwnStdout, fail_if_closed, keep_closed, stdin, stdout, was_closed, was_pipe_ignored,
};
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

/// Returns a writer to this process's own stdout or stderr that a slow reader cannot block: if
/// [`has_room`](PipeWriter::has_room) is true, `try_write` does not block. `None`: the stream is
/// closed.
///
/// Bypasses std's buffer.
///
/// # Platform
/// `O_NONBLOCK` belongs to the open file, which is shared: the shell that started this process
/// would find its terminal non-blocking. Linux: a pipe or terminal is reopened through
/// `/proc/self/fd`, which makes an open file of our own, with `O_NONBLOCK`. If that is not possible
/// (no `/proc`, a terminal of another user, a socket, macOS), a duplicate of the handle is written
/// to in pieces of at most `PIPE_BUF` bytes (4096; macOS 512). A pipe has room for one after `poll`
/// reports it writable, unless another writer fills it in between. Terminals make no such promise
/// and count as writable with less room: a stopped one can then block this process. A file is
/// written to in place: the caller waits for the disk.
///
/// Windows: a duplicate of the handle. A thread of its own writes to a pipe or a console, after it
/// has flushed std's buffer for stdout; `has_room` is false. A wait that ends before the write
/// cancels it (`CancelSynchronousIo`). A write to a console with a text selection goes on, and the
/// next wait for the same bytes waits for it. A file is written to in place. The bytes are not
/// converted: a console shows them in its code page, like those of a child.
///
/// # Errors
/// No more handles are available.
pub fn console_writer(to_stderr: bool) -> io::Result<Option<PipeWriter>> {
    imp::console_writer(to_stderr)
}

/// Returns a writer to that file, pipe or terminal, with the guarantees of [`console_writer`].
///
/// # Platform
/// As [`console_writer`].
///
/// # Errors
/// No more handles are available.
pub fn writer_to(target: Handle) -> io::Result<PipeWriter> {
    imp::writer_to(target)
}

/// Duplicates this process's own stdin.
///
/// # Platform
/// Windows: `GetStdHandle`, `DuplicateHandle`; the same for the other two.
///
/// # Errors
/// stdin is closed, or missing (a program without a console), or no more handles are available.
pub fn console_in() -> io::Result<Handle> {
    imp::console(0)
}

/// Duplicates this process's own stdout.
///
/// # Errors
/// stdout is closed, or no more handles are available.
pub fn console_out() -> io::Result<Handle> {
    imp::console(1)
}

/// Duplicates this process's own stderr.
///
/// # Errors
/// stderr is closed, or no more handles are available.
pub fn console_err() -> io::Result<Handle> {
    imp::console(2)
}
