//! Implements each end of a pipe as a slot that a task waits for. A console is read on a thread, and a file in place.

use std::io;
use std::mem;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use tokio::io::ReadBuf;

use super::read_in_place;
use super::thread_reader::ThreadReader;
use crate::base::handle::HandleKind;
use crate::base::pipe::{PipeReader, PipeWriter};
use crate::base::wait::{Slot, Watch};

/// The number of bytes read at once, which are then handed out in pieces of the requested size.
const CHUNK_BYTES: usize = 64 << 10;
/// The number of bytes that one write accepts, and copies.
const MAX_ACCEPTED_BYTES: usize = 64 << 10;

/// The reading end of a pipe, or the standard input.
#[derive(Debug)]
pub(crate) enum Reader {
    /// This process does not have the stream.
    Closed,
    InPlace(PipeReader),
    OnThread(ThreadReader),
    Slot(SlotReader),
}

/// The writing end of a pipe, or a standard output.
#[derive(Debug)]
pub(crate) enum Writer {
    /// This process does not have the stream.
    Closed,
    Slot(SlotWriter),
}

impl Reader {
    pub(super) fn of_pipe(pipe: PipeReader) -> io::Result<Reader> {
        Ok(Reader::Slot(SlotReader::new(pipe)))
    }

    pub(crate) fn of_stdio(pipe: PipeReader, kind: HandleKind) -> io::Result<Reader> {
        match kind {
            HandleKind::Pipe => Reader::of_pipe(pipe),
            HandleKind::File | HandleKind::Directory => Ok(Reader::InPlace(pipe)),
            // A console, or another object that supports only blocking reads.
            _ => ThreadReader::new(pipe).map(Reader::OnThread),
        }
    }

    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Reader::Closed => Poll::Ready(Ok(())),
            Reader::InPlace(pipe) => read_in_place(cx, &*pipe, buffer),
            Reader::OnThread(source) => source.poll_read(cx, buffer),
            Reader::Slot(reader) => reader.poll_read(cx, buffer),
        }
    }
}

impl Writer {
    pub(crate) fn of_pipe(pipe: PipeWriter) -> io::Result<Writer> {
        Ok(Writer::Slot(SlotWriter(WriteState { pipe: Some(pipe), ..WriteState::default() })))
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Writer::Closed => Poll::Ready(Ok(bytes.len())),
            Writer::Slot(writer) => writer.poll_write(cx, bytes),
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Writer::Closed => Poll::Ready(Ok(())),
            Writer::Slot(writer) => writer.poll_flush(cx),
        }
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Writer::Closed => Poll::Ready(Ok(())),
            Writer::Slot(writer) => writer.poll_shutdown(cx),
        }
    }
}

#[derive(Debug)]
pub(crate) struct SlotReader {
    /// Declared before the pipe, which it holds a handle of.
    watch: Watch,
    slot: Slot<'static>,
    chunk: Vec<u8>,
    /// The number of bytes of the chunk that have been handed out.
    handed_out: usize,
}

impl SlotReader {
    fn new(pipe: PipeReader) -> SlotReader {
        let slot = Slot::Read(pipe, Vec::with_capacity(CHUNK_BYTES));
        SlotReader { watch: Watch::default(), slot, chunk: Vec::new(), handed_out: 0 }
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.handed_out == self.chunk.len() {
            ready!(self.poll_chunk(cx))?;
        }
        let rest = self.chunk.get(self.handed_out..).unwrap_or_default();
        let piece = rest.get(..buffer.remaining()).unwrap_or(rest);
        buffer.put_slice(piece);
        self.handed_out += piece.len();
        Poll::Ready(Ok(()))
    }

    /// Waits for the next chunk, which is empty at the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.watch.poll_wait(cx, slice::from_mut(&mut self.slot), None))?;
        let (pipe, chunk, result) = match mem::take(&mut self.slot) {
            Slot::ReadDone(pipe, chunk, result) => (pipe, chunk, result),
            // Unreachable: a wait for a read has no other result.
            other => {
                self.slot = other;
                return Poll::Ready(Err(io::ErrorKind::Other.into()));
            }
        };
        let mut next = mem::replace(&mut self.chunk, chunk);
        self.handed_out = 0;
        next.clear();
        next.reserve_exact(CHUNK_BYTES);
        self.slot = Slot::Read(pipe, next);
        Poll::Ready(result.map(drop))
    }
}

#[derive(Debug)]
pub(crate) struct SlotWriter(WriteState);

#[derive(Debug, Default)]
struct WriteState {
    /// Declared before the pipe, which it holds a handle of.
    watch: Watch,
    /// The accepted bytes that are not yet written.
    slot: Slot<'static>,
    /// The number of those bytes that are written.
    written: usize,
    /// The pipe, while no write is in progress. `None` then: it has been shut down.
    pipe: Option<PipeWriter>,
}

impl SlotWriter {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Bytes accepted earlier come first.
        ready!(self.poll_flush(cx))?;
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let Some(pipe) = self.0.pipe.take() else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let taken = bytes.get(..MAX_ACCEPTED_BYTES).unwrap_or(bytes);
        self.0.written = 0;
        self.0.slot = Slot::Write(pipe, Arc::new(taken.to_vec()), 0);
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // Only the end of a write reports that there is room: so this one goes on.
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken.len())),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_written(|watch, slots| watch.poll_wait(cx, slots, None))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(self.poll_flush(cx));
        self.0.pipe = None;
        Poll::Ready(flushed)
    }
}

impl Drop for SlotWriter {
    fn drop(&mut self) {
        if matches!(self.0.slot, Slot::Write(..)) {
            let writing = mem::take(&mut self.0);
            Arc::new(Background(Mutex::new(Some(writing)))).wake();
        }
    }
}

impl WriteState {
    /// Waits until the accepted bytes are written.
    fn poll_written(
        &mut self,
        mut wait: impl FnMut(&mut Watch, &mut [Slot<'static>]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        while let Slot::Write(..) = &self.slot {
            let waited = ready!(wait(&mut self.watch, slice::from_mut(&mut self.slot)));
            match mem::take(&mut self.slot) {
                Slot::WriteDone(pipe, bytes, Ok(count)) if count > 0 => {
                    self.written += count;
                    if self.written < bytes.len() {
                        self.slot = Slot::Write(pipe, bytes, self.written);
                    } else {
                        self.pipe = Some(pipe);
                    }
                }
                Slot::WriteDone(pipe, _, result) => {
                    self.pipe = Some(pipe);
                    let nothing = || Err(io::ErrorKind::WriteZero.into());
                    return Poll::Ready(result.map(drop).and_then(|()| nothing()));
                }
                // The wait failed, so the accepted bytes are lost. This returns the error.
                Slot::Write(pipe, ..) => {
                    self.pipe = Some(pipe);
                    return Poll::Ready(waited.map(drop));
                }
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The unwritten bytes of a dropped end. The thread that would wake a task continues the write.
struct Background(Mutex<Option<WriteState>>);

impl Wake for Background {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut cx = Context::from_waker(&waker);
        // Another thread may wake it while it still runs.
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(writing) = place.as_mut() else { return };
        if writing.poll_written(|watch, slots| watch.poll_writes(&mut cx, slots)).is_ready() {
            // Ignored, as documented: there is no caller to report to. This closes the end.
            *place = None;
        }
    }
}
