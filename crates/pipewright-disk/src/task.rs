//! A file as a stream with a position: tokio's I/O traits.

use std::future::Future as _;
use std::io::{self, SeekFrom};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};
use tokio::task::coop;

use crate::{AlignedBuf, DiskFile, Done, Pending, SharedEngine};

/// The maximum size of one operation: a larger one would only use more memory.
const MAX_BYTES: usize = 256 << 10;

/// A [`DiskFile`] with a position that implements tokio's `AsyncRead`, `AsyncWrite` and `AsyncSeek`.
///
/// Requires the feature `tokio`. Any number of these files share an engine and its one thread; no runtime
/// thread blocks. It works in every runtime, because it uses only the traits of tokio.
///
/// A write is complete when its future is ready. This type buffers no writes, so `flush` has nothing to do (unless the
/// future of a write was dropped), and a write reports its own errors. (`tokio::fs::File` reports them in the next
/// write.) As with every file, only a [sync](SharedEngine::sync_all) waits until the data are on the disk.
///
/// A file opened for direct I/O ([`direct`](crate::FileOptions::direct)) can be read in pieces of any size
/// from any position: this type reads whole blocks, and keeps the rest of a block for the next read. Writes have to
/// be [aligned](DiskFile::alignment).
///
/// After a write to a file opened for [appending](crate::FileOptions::append), the position is the end of the file, as
/// with std. If others append at the same time, their writes may be before it too.
///
/// # Cancellation
/// Dropping the future of a read loses no byte: the next read returns it. A write that has started continues
/// after its future is dropped, and completes or fails. The position doesn't move, so the same bytes can be
/// written again. The next operation waits for that write and reports its error.
///
/// # Drop
/// Cancels an operation that has not started. The result of a write that has started is not reported.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pipewright_disk::{AsyncFile, DiskFile, EngineOptions, SharedEngine};
/// use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
/// let path = std::env::temp_dir().join(format!("pipewright-task-{}", std::process::id()));
/// let file = DiskFile::options().read(true).write(true).create(true).open(&path)?;
/// let engine = SharedEngine::new(EngineOptions::default())?;
///
/// let mut stream = AsyncFile::new(&engine, &file);
/// stream.write_all(b"hello, disk").await?;
/// engine.sync_data(&file).await.result?;
///
/// stream.seek(std::io::SeekFrom::Start(7)).await?;
/// let mut word = String::new();
/// stream.read_to_string(&mut word).await?;
/// assert_eq!(word, "disk");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct AsyncFile {
    engine: SharedEngine,
    file: DiskFile,
    position: u64,
    state: State,
    /// The buffer of the last operation, reused by the next.
    buffer: AlignedBuf,
}

#[derive(Debug)]
enum State {
    Idle,
    /// A read that started at this offset of the file.
    Reading {
        pending: Pending,
        from: u64,
    },
    /// A buffer with this many bytes from this offset on, for the next read.
    Read {
        from: u64,
        bytes: usize,
    },
    Writing {
        pending: Pending,
        from: u64,
    },
}

impl AsyncFile {
    /// Creates a stream that reads and writes the file through the engine, starting at offset 0.
    #[must_use]
    pub fn new(engine: &SharedEngine, file: &DiskFile) -> AsyncFile {
        AsyncFile {
            engine: engine.clone(),
            file: file.clone(),
            position: 0,
            state: State::Idle,
            buffer: AlignedBuf::default(),
        }
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &DiskFile {
        &self.file
    }

    /// Returns the offset of the next read or write.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns a buffer of that length. Reuses the last one if it is large enough.
    fn take_buffer(&mut self, bytes: usize) -> io::Result<AlignedBuf> {
        let mut buffer = mem::take(&mut self.buffer);
        buffer.expand();
        if buffer.len() < bytes {
            buffer = self.file.buffer(bytes)?;
        }
        buffer.truncate(bytes);
        Ok(buffer)
    }

    /// Starts a read of that many bytes, rounded to whole blocks for direct I/O.
    fn start_read(&mut self, wanted: usize) -> io::Result<()> {
        let block = self.file.alignment().offset.max(1);
        let before = (self.position % block as u64) as usize;
        let bytes = (before + wanted.min(MAX_BYTES)).next_multiple_of(block);
        let (buffer, from) = (self.take_buffer(bytes)?, self.position - before as u64);
        let pending = self.engine.read_at(&self.file, buffer, from);
        self.state = State::Reading { pending, from };
        Ok(())
    }

    /// Copies the bytes read. None are left at the end of the file.
    fn take_read(&mut self, from: u64, bytes: usize, to: &mut ReadBuf<'_>) {
        let before = (self.position - from) as usize;
        let there = self.buffer.get(before..bytes).unwrap_or_default();
        let part = there.get(..to.remaining()).unwrap_or(there);
        to.put_slice(part);
        self.position += part.len() as u64;
        if part.len() == there.len() {
            self.state = State::Idle;
        }
    }

    /// Ends the operation in flight and keeps its buffer for the next.
    fn end(&mut self, done: Done) -> io::Result<usize> {
        self.state = State::Idle;
        self.buffer = done.buffer;
        Ok(done.result?.bytes)
    }

    fn poll_read_once(
        &mut self,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut self.state {
                State::Idle if to.remaining() == 0 => return Poll::Ready(Ok(())),
                State::Idle => self.start_read(to.remaining())?,
                State::Reading { pending, from } => {
                    let from = *from;
                    let done = ready!(Pin::new(pending).poll(context));
                    let bytes = self.end(done)?;
                    self.state = State::Read { from, bytes };
                }
                State::Read { from, bytes } => {
                    let (from, bytes) = (*from, *bytes);
                    self.take_read(from, bytes, to);
                    return Poll::Ready(Ok(()));
                }
                State::Writing { .. } => ready!(self.poll_write_done(context))?,
            }
        }
    }

    fn poll_write_once(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match &mut self.state {
                State::Idle if bytes.is_empty() => return Poll::Ready(Ok(0)),
                State::Idle => {
                    let part = bytes.get(..MAX_BYTES).unwrap_or(bytes);
                    let mut buffer = self.take_buffer(part.len())?;
                    buffer.copy_from_slice(part);
                    let from = self.position;
                    let pending = self.engine.write_at(&self.file, buffer, from);
                    self.state = State::Writing { pending, from };
                }
                State::Writing { pending, from } => {
                    let is_here = *from == self.position;
                    let done = ready!(Pin::new(pending).poll(context));
                    let written = self.end(done)?;
                    // Otherwise the future of this write was dropped, and the current write comes after it.
                    if is_here && bytes.starts_with(&self.buffer) {
                        self.position = self.position_after(written);
                        return Poll::Ready(Ok(written));
                    }
                }
                // Data read ahead of the write would be stale after it.
                State::Reading { .. } | State::Read { .. } => self.state = State::Idle,
            }
        }
    }

    /// Returns the position after a write of that many bytes. The system reports no offset for an appended write, but
    /// the file ended with it when it was done.
    fn position_after(&self, written: usize) -> u64 {
        let behind = self.position + written as u64;
        // The bytes are written: a failure to look up the length must not look like a failed write.
        if self.file.is_append() { self.file.len().unwrap_or(behind) } else { behind }
    }

    /// Waits until no write is in flight.
    fn poll_write_done(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let State::Writing { pending, .. } = &mut self.state {
            let done = ready!(Pin::new(pending).poll(context));
            self.end(done)?;
        }
        Poll::Ready(Ok(()))
    }
}

/// Polls within the task's cooperative budget, so that a task whose data are all in memory yields to others.
fn with_budget<T>(
    context: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let turn = ready!(coop::poll_proceed(context));
    let polled = poll(context);
    if polled.is_ready() {
        turn.made_progress();
    }
    polled
}

impl AsyncRead for AsyncFile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        with_budget(context, |context| self.poll_read_once(context, to))
    }
}

impl AsyncWrite for AsyncFile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        with_budget(context, |context| self.poll_write_once(context, bytes))
    }

    /// Waits for a write whose future was dropped.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_done(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl AsyncSeek for AsyncFile {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let (base, distance) = match to {
            SeekFrom::Start(place) => (place, 0),
            SeekFrom::Current(distance) => (self.position, distance),
            // The length is known without disk access.
            SeekFrom::End(distance) => (self.file.len()?, distance),
        };
        let nowhere = || io::Error::new(io::ErrorKind::InvalidInput, "before the beginning");
        let place = base.checked_add_signed(distance).ok_or_else(nowhere)?;
        if place != self.position && !matches!(self.state, State::Writing { .. }) {
            self.state = State::Idle;
        }
        self.position = place;
        Ok(())
    }

    fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        ready!(self.poll_write_done(context))?;
        Poll::Ready(Ok(self.position))
    }
}
