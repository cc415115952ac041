//! This process's standard streams for async tasks, with tokio's traits.

#[cfg(any(windows, test))]
mod thread_reader;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::poll_proceed;

use crate::base::wait::current_runtime;

/// This process's own stdin, for tasks of a tokio runtime: see [`stdin_async`].
///
/// # Cancellation
/// Dropping the future of a read loses no byte: the next read returns it.
///
/// # Drop
/// Leaves the process's stdin open, in its original mode. Windows, a console: a line that was read
/// and not taken is lost.
#[derive(Debug)]
pub struct AsyncStdin(imp::Reader);

/// This process's own stdout or stderr, for tasks of a tokio runtime: see [`stdout_async`] and
/// [`stderr_async`].
///
/// `shutdown` ends writing through this value: a later write fails (`BrokenPipe`).
///
/// # Cancellation
/// A `write` whose future is dropped before it is ready has written nothing. A dropped `write_all` may
/// have written a part, as with every writer of tokio.
///
/// # Drop
/// Leaves the process's stream open, in its original mode. Unix: nothing is lost. Windows: accepted
/// bytes are written in the background, and are lost if this process ends before that is complete;
/// `flush` waits for it.
#[derive(Debug)]
pub struct AsyncStdout(imp::Writer);

/// Returns this process's own stdin, for tasks.
///
/// No read blocks the thread of the runtime, except on a file. Bytes in the buffer of
/// `std::io::stdin()` are not returned here. A closed stdin is at its end, as std's is.
///
/// # Platform
/// Unix: the open file is shared (with the shell, or the other processes of a pipeline), so its
/// mode does not change: `O_NONBLOCK` is not set while this is used, nor left over after an exit.
/// Linux: a pipe or terminal is reopened through `/proc/self/fd`, which makes a separate open file.
/// If that is refused, and on macOS, each call itself asks not to block, as in
/// [`pair`](crate::base::pipe::pair), which lists the cases that do block. A call on a terminal can
/// block too, if another process takes the line between the `poll` and the `read`. A socket is read
/// with `MSG_DONTWAIT`. A file, and any object that cannot be waited for (`/dev/null`), is read in
/// place: the calling thread waits for the disk.
///
/// Windows: a pipe is read as by [`into_async`](crate::base::pipe::PipeReader::into_async). A
/// console is read by a thread of its own, which starts a read when one is requested. A file is
/// read in place.
///
/// # Errors
/// `Unsupported` outside a tokio runtime. No more handles are available.
///
/// # Panics
/// The runtime was built without `enable_io` or, on Windows, `enable_time`.
///
/// ```no_run
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # use pipewright_os::base::stdio::stdin_async;
/// use tokio::io::AsyncReadExt;
/// let mut all = String::new();
/// stdin_async()?.read_to_string(&mut all).await?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub fn stdin_async() -> io::Result<AsyncStdin> {
    current_runtime()?;
    imp::stdin().map(AsyncStdin)
}

/// Returns this process's own stdout, for tasks.
///
/// No write blocks the thread of the runtime, except to a file. Bytes in the buffer of
/// `std::io::stdout()` are not written here: flush that first. A closed stdout accepts everything,
/// as std's does.
///
/// # Platform
/// Unix: as [`stdin_async`]. A terminal that cannot be reopened can block a write: it counts as
/// writable with less room than the write needs ([`console_writer`](super::console_writer)).
///
/// Windows: a pipe that is not overlapped, and a console, get a writer thread of their own.
///
/// # Errors
/// `Unsupported` outside a tokio runtime. No more handles are available.
///
/// # Panics
/// The runtime was built without `enable_io`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # use pipewright_os::base::stdio::stdout_async;
/// use tokio::io::AsyncWriteExt;
/// let mut stdout = stdout_async()?;
/// stdout.write_all(b"hello\n").await?;
/// stdout.flush().await?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub fn stdout_async() -> io::Result<AsyncStdout> {
    current_runtime()?;
    imp::stdout(false).map(AsyncStdout)
}

/// Returns this process's own stderr, for tasks.
///
/// # Platform
/// As [`stdout_async`].
///
/// # Errors
/// As [`stdout_async`].
///
/// # Panics
/// As [`stdout_async`].
pub fn stderr_async() -> io::Result<AsyncStdout> {
    current_runtime()?;
    imp::stdout(true).map(AsyncStdout)
}

impl AsyncRead for AsyncStdin {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.0.poll_read(cx, buffer)
    }
}

impl AsyncWrite for AsyncStdout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_shutdown(cx)
    }
}

/// The most that is read or written in place at once, so that other tasks get their turn.
const MOST_IN_PLACE_BYTES: usize = 128 << 10;

/// Fills a buffer with a call that needs no wait.
fn read_in_place(
    cx: &mut Context<'_>,
    mut source: impl io::Read,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let turn = ready!(poll_proceed(cx));
    let room = buffer.remaining().min(MOST_IN_PLACE_BYTES);
    let count = source.read(buffer.initialize_unfilled_to(room))?;
    buffer.advance(count);
    turn.made_progress();
    Poll::Ready(Ok(()))
}

/// Writes with a call that needs no wait.
#[cfg(unix)]
fn write_in_place(
    cx: &mut Context<'_>,
    mut target: impl io::Write,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    let turn = ready!(poll_proceed(cx));
    let count = target.write(bytes.get(..MOST_IN_PLACE_BYTES).unwrap_or(bytes))?;
    turn.made_progress();
    Poll::Ready(Ok(count))
}
