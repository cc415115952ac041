//! Pipe ends and this process's standard streams for async tasks, with tokio's traits.

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

use crate::base::pipe::{PipeReader, PipeWriter};
use crate::base::wait::current_runtime;

pub(crate) use imp::{Reader, Writer};

/// The reading end of a pipe, for tasks of a tokio runtime: see [`PipeReader::into_async`].
///
/// A read returns the available bytes, and waits only if there are none; at the end of the stream
/// it returns 0 bytes.
///
/// # Cancellation
/// Dropping the future of a read loses no byte: the next read returns it.
///
/// # Drop
/// Closes the end.
#[derive(Debug)]
pub struct AsyncPipeReader(Reader);

/// The writing end of a pipe, for tasks of a tokio runtime: see [`PipeWriter::into_async`].
///
/// A write accepts the bytes that fit, and waits only if none do. `shutdown` closes the end, so
/// that the reader sees the end of its input. A write after that fails (`BrokenPipe`), as does one
/// to a pipe without a reader.
///
/// # Platform
/// Windows: accepted bytes that do not fit are written in the background. `flush` and `shutdown`
/// wait for that and return its error; otherwise the next write does.
///
/// # Cancellation
/// A `write` whose future is dropped before it is ready has written nothing. A dropped `write_all` may
/// have written a part, as with every writer of tokio.
///
/// # Drop
/// Closes the end as soon as all accepted bytes are written. An error of that write is lost, and so
/// are the bytes if this process ends before it is complete.
#[derive(Debug)]
pub struct AsyncPipeWriter(Writer);

/// This process's own stdin, for tasks of a tokio runtime: see
/// [`stdin_async`](crate::base::stdio::stdin_async).
///
/// # Cancellation
/// Dropping the future of a read loses no byte: the next read returns it.
///
/// # Drop
/// Leaves the process's stdin open, in its original mode. Windows, a console: a line that was read
/// and not taken is lost.
#[derive(Debug)]
pub struct AsyncStdin(Reader);

/// This process's own stdout or stderr, for tasks of a tokio runtime: see
/// [`stdout_async`](crate::base::stdio::stdout_async) and [`stderr_async`](crate::base::stdio::stderr_async).
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
pub struct AsyncStdout(Writer);

impl PipeReader {
    /// Converts the end for use in tasks.
    ///
    /// # Platform
    /// Unix: tokio's `AsyncFd`, and reads that do not block, which have no effect on other users of
    /// the end (see [`pair`](crate::base::pipe::pair)). Windows: overlapped reads, whose
    /// completions one thread of this crate reports for the whole process; an end that is not
    /// overlapped is checked every 5 ms.
    ///
    /// # Errors
    /// `Unsupported` outside a tokio runtime. An error if the object is not a pipe and cannot be
    /// waited for (a file).
    ///
    /// # Panics
    /// The runtime was built without `enable_io` or, on Windows, `enable_time`.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use pipewright_os::base::pipe::pair as pipe;
    /// use std::io::Write;
    /// use tokio::io::AsyncReadExt;
    /// let (reader, mut writer) = pipe(Default::default())?;
    /// let mut reader = reader.into_async()?;
    /// writer.write_all(b"hello")?;
    /// drop(writer);
    /// let mut text = String::new();
    /// reader.read_to_string(&mut text).await?;
    /// assert_eq!(text, "hello");
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn into_async(self) -> io::Result<AsyncPipeReader> {
        current_runtime()?;
        Reader::of_pipe(self).map(AsyncPipeReader)
    }
}

impl PipeWriter {
    /// Converts the end for use in tasks.
    ///
    /// # Platform
    /// Unix: tokio's `AsyncFd`, and writes that do not block, which have no effect on other users
    /// of the end (see [`pair`](crate::base::pipe::pair)). Windows: overlapped writes, whose
    /// completions one thread of this crate reports for the whole process. An end that is not
    /// overlapped (a child's stdin, unless it was made overlapped) gets a writer thread of its own.
    ///
    /// # Errors
    /// `Unsupported` outside a tokio runtime. An error if the object is not a pipe and cannot be
    /// waited for (a file).
    ///
    /// # Panics
    /// The runtime was built without `enable_io`.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use pipewright_os::base::pipe::pair as pipe;
    /// use std::io::Read;
    /// use tokio::io::AsyncWriteExt;
    /// let (mut reader, writer) = pipe(Default::default())?;
    /// let mut writer = writer.into_async()?;
    /// writer.write_all(b"hello").await?;
    /// writer.shutdown().await?;
    /// let mut text = String::new();
    /// reader.read_to_string(&mut text)?;
    /// assert_eq!(text, "hello");
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn into_async(self) -> io::Result<AsyncPipeWriter> {
        current_runtime()?;
        Writer::of_pipe(self).map(AsyncPipeWriter)
    }
}

impl From<Reader> for AsyncStdin {
    fn from(reader: Reader) -> AsyncStdin {
        AsyncStdin(reader)
    }
}

impl From<Writer> for AsyncStdout {
    fn from(writer: Writer) -> AsyncStdout {
        AsyncStdout(writer)
    }
}

macro_rules! reads {
    ($reader:ty) => {
        impl AsyncRead for $reader {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                if buffer.remaining() == 0 {
                    // A read of zero bytes must not report the end of the stream.
                    return Poll::Ready(Ok(()));
                }
                self.0.poll_read(cx, buffer)
            }
        }
    };
}

macro_rules! writes {
    ($writer:ty) => {
        impl AsyncWrite for $writer {
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

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                self.0.poll_shutdown(cx)
            }
        }
    };
}

reads!(AsyncPipeReader);
reads!(AsyncStdin);
writes!(AsyncPipeWriter);
writes!(AsyncStdout);

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
