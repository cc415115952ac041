//! Pipe ends for async tasks, with tokio's traits.

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
pub struct AsyncPipeReader(imp::Reader);

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
pub struct AsyncPipeWriter(imp::Writer);

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
        imp::reader(self).map(AsyncPipeReader)
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
        imp::writer(self).map(AsyncPipeWriter)
    }
}

/// Converts as [`PipeReader::into_async`] does, but returns the end if it cannot be waited for.
#[cfg(unix)]
pub(crate) fn try_into_async_reader(
    pipe: PipeReader,
) -> Result<AsyncPipeReader, (PipeReader, io::Error)> {
    imp::try_reader(pipe).map(AsyncPipeReader)
}

/// Converts as [`PipeWriter::into_async`] does, but returns the end if it cannot be waited for.
#[cfg(unix)]
pub(crate) fn try_into_async_writer(
    pipe: PipeWriter,
) -> Result<AsyncPipeWriter, (PipeWriter, io::Error)> {
    imp::try_writer(pipe).map(AsyncPipeWriter)
}

impl AsyncRead for AsyncPipeReader {
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
