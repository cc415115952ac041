//! The ends of a pipe for a task: tokio's traits.

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
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::base::pipe::{PipeReader, PipeWriter};
use crate::base::wait::current_runtime;

/// The end of a pipe that is read, for tasks of a tokio runtime: see [`PipeReader::into_async`].
///
/// A read gives what is there, and waits only where there is nothing; at the end of the stream it
/// gives nothing.
///
/// # Cancellation
/// Dropping the future of a read loses no byte: the next read finds it.
///
/// # Drop
/// Closes the end.
#[derive(Debug)]
pub struct AsyncPipeReader(imp::Reader);

/// The end of a pipe that is written, for tasks of a tokio runtime: see [`PipeWriter::into_async`].
///
/// A write takes what fits, and waits only where nothing does. `shutdown` closes the end, so that
/// the reader sees the end of its input; a write after that is refused (`BrokenPipe`), as is one to
/// a pipe that nobody reads.
///
/// # Platform
/// Windows: what a write has taken and does not fit is written in the background. `flush` and
/// `shutdown` wait for that and tell of an error; else the next write does.
///
/// # Cancellation
/// Dropping the future of a `write` writes nothing: it has written, or it has not. That of a
/// `write_all` may have written a part, as everywhere.
///
/// # Drop
/// Closes the end, when all that was taken has been written; nobody is told if that fails, and it is
/// lost if this process ends before.
#[derive(Debug)]
pub struct AsyncPipeWriter(imp::Writer);

impl PipeReader {
    /// The same end, for tasks.
    ///
    /// # Platform
    /// Unix: tokio's `AsyncFd`, and reads that do not wait, which others that share the end cannot tell
    /// (see [`pair`](crate::base::pipe::pair)). Windows: overlapped reads, which one thread of ours
    /// tells of for the whole process; an end that does not overlap is looked at every 5 ms.
    ///
    /// # Errors
    /// `Unsupported` outside of a tokio runtime. What is no pipe, and cannot be waited for (a file).
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
        imp::reader(self).map(AsyncPipeReader)
    }
}

impl PipeWriter {
    /// The same end, for tasks.
    ///
    /// # Platform
    /// Unix: tokio's `AsyncFd`, and writes that do not wait, which others that share the end cannot tell
    /// (see [`pair`](crate::base::pipe::pair)). Windows: overlapped writes, which one thread of ours
    /// tells of for the whole process. An end that does not overlap (that of a child's stdin, unless
    /// it was made to) is written to by a thread of its own.
    ///
    /// # Errors
    /// `Unsupported` outside of a tokio runtime. What is no pipe, and cannot be waited for (a file).
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
        imp::writer(self).map(AsyncPipeWriter)
    }
}

/// As [`PipeReader::into_async`], and returns the end where it cannot be waited for.
#[cfg(unix)]
pub(crate) fn task_reader(pipe: PipeReader) -> Result<AsyncPipeReader, (PipeReader, io::Error)> {
    imp::try_reader(pipe).map(AsyncPipeReader)
}

/// As [`PipeWriter::into_async`], and returns the end where it cannot be waited for.
#[cfg(unix)]
pub(crate) fn task_writer(pipe: PipeWriter) -> Result<AsyncPipeWriter, (PipeWriter, io::Error)> {
    imp::try_writer(pipe).map(AsyncPipeWriter)
}

impl AsyncRead for AsyncPipeReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            // It asks for nothing, and is not to be told of an end.
            return Poll::Ready(Ok(()));
        }
        self.0.poll_read(cx, buffer)
    }
}

impl AsyncWrite for AsyncPipeWriter {
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
