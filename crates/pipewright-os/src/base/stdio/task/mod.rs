//! This process's own stdio for a task: tokio's traits.

#[cfg(any(windows, test))]
mod by_thread;
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
/// Dropping the future of a read loses no byte: the next read finds it.
///
/// # Drop
/// Leaves the process's stdin open, in the mode that it had. Windows, a console: a line that has been read and
/// not been taken is lost.
#[derive(Debug)]
pub struct AsyncStdin(imp::Reader);

/// This process's own stdout or stderr, for tasks of a tokio runtime: see [`stdout_async`] and
/// [`stderr_async`].
///
/// `shutdown` ends writing by this value: a write after that is refused (`BrokenPipe`).
///
/// # Cancellation
/// Dropping the future of a `write` writes nothing: it has written, or it has not. That of a `write_all` may
/// have written a part, as everywhere.
///
/// # Drop
/// Leaves the process's stream open, in the mode that it had. Unix: nothing is lost. Windows: what was taken is
/// written in the background, and lost if this process ends before; `flush` waits for it.
#[derive(Debug)]
pub struct AsyncStdout(imp::Writer);

/// Returns this process's own stdin, for tasks.
///
/// No read blocks the thread of the runtime, but of a file. What `std::io::stdin()` has in its buffer does not
/// come through here. A stdin that is closed is at its end, as std's is.
///
/// # Platform
/// Unix: the open file is shared with others (the shell, the other processes of a pipeline), so its
/// mode is not changed, and `O_NONBLOCK` is neither there while this is used nor after an exit. Linux: a
/// pipe and a terminal are opened anew through `/proc/self/fd`, for an open file of our own. Where that is
/// refused, and on macOS, the calls are kept from waiting one by one: as in [`pair`](crate::base::pipe::pair),
/// which tells where one can wait after all; so can one on a terminal, if another process takes the line between
/// the `poll` and the `read`. A socket is asked with `MSG_DONTWAIT`. A file, and what else cannot be
/// waited for (`/dev/null`), is read in place: a disk is waited for on the calling thread.
///
/// Windows: a pipe is read as by [`into_async`](crate::base::pipe::PipeReader::into_async), a console by a thread of its
/// own, which begins a read when one is asked for; a file in place.
///
/// # Errors
/// `Unsupported` outside of a tokio runtime. No room for another handle.
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
/// No write blocks the thread of the runtime, but to a file. What `std::io::stdout()` has in its buffer does not
/// come through here: flush that first. A stdout that is closed takes everything, as std's does.
///
/// # Platform
/// Unix: as [`stdin_async`]. A terminal that cannot be opened anew can hold up a write: it calls itself
/// writable with less room than it needs ([`console_writer`](super::console_writer)).
///
/// Windows: a thread of its own writes, for a pipe that does not overlap and for a console.
///
/// # Errors
/// `Unsupported` outside of a tokio runtime. No room for another handle.
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

/// The most that is read or written in place at once: other tasks are to have their turn.
const MOST_IN_PLACE_BYTES: usize = 128 << 10;

/// Fills a buffer by a call that does not have to be waited for.
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

/// Writes by a call that does not have to be waited for.
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
