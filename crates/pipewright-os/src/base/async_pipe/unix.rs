//! Registers each end with the runtime, and reads or writes when the runtime reports it ready.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{Interest, ReadBuf};

use crate::base::pipe::{MOST_READ_BYTES, PipeReader, PipeWriter};

#[derive(Debug)]
pub(super) struct Reader(AsyncFd<PollableReader>);

/// The writing end. `None`: it has been shut down.
#[derive(Debug)]
pub(super) struct Writer(Option<AsyncFd<PollableWriter>>);

/// A reading end as the runtime sees it. The runtime only polls its descriptor.
#[derive(Debug)]
struct PollableReader(PipeReader);

#[derive(Debug)]
struct PollableWriter(PipeWriter);

impl AsRawFd for PollableReader {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd_for_wait().as_raw_fd()
    }
}

impl AsRawFd for PollableWriter {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd_for_wait().as_raw_fd()
    }
}

pub(super) fn reader(pipe: PipeReader) -> io::Result<Reader> {
    try_reader(pipe).map_err(|(_, error)| error)
}

pub(super) fn writer(pipe: PipeWriter) -> io::Result<Writer> {
    try_writer(pipe).map_err(|(_, error)| error)
}

/// Registers as [`reader`] does, but returns the end if that fails.
pub(super) fn try_reader(pipe: PipeReader) -> Result<Reader, (PipeReader, io::Error)> {
    // SAFETY: it owns the descriptor, which stays open and the same until the drop: no other code
    // can reach the reader.
    let registered =
        unsafe { AsyncFd::register_with_interest(PollableReader(pipe), Interest::READABLE) };
    match registered.map_err(|error| error.into_parts()) {
        Ok(registered) => Ok(Reader(registered)),
        Err((PollableReader(pipe), error)) => Err((pipe, error)),
    }
}

/// Registers as [`writer`] does, but returns the end if that fails.
pub(super) fn try_writer(pipe: PipeWriter) -> Result<Writer, (PipeWriter, io::Error)> {
    // SAFETY: as above; so `close` cannot replace the descriptor.
    let registered =
        unsafe { AsyncFd::register_with_interest(PollableWriter(pipe), Interest::WRITABLE) };
    match registered.map_err(|error| error.into_parts()) {
        Ok(registered) => Ok(Writer(Some(registered))),
        Err((PollableWriter(pipe), error)) => Err((pipe, error)),
    }
}

impl Reader {
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let room = buffer.remaining().min(MOST_READ_BYTES);
            let into = buffer.initialize_unfilled_to(room);
            if let Some(count) = try_call(&mut ready, |PollableReader(pipe)| pipe.try_read(into))? {
                buffer.advance(count);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Writer {
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(pipe) = &self.0 else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        loop {
            let mut ready = ready!(pipe.poll_write_ready(cx))?;
            if let Some(count) = try_call(&mut ready, |PollableWriter(pipe)| pipe.try_write(bytes))?
            {
                return Poll::Ready(Ok(count));
            }
        }
    }

    pub(super) fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // This side of the system call has no buffer.
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0 = None;
        Poll::Ready(Ok(()))
    }
}

/// Makes the call that the end was reported ready for. `None`: it was not ready after all.
fn try_call<P: AsRawFd>(
    ready: &mut AsyncFdReadyGuard<'_, P>,
    call: impl FnOnce(&P) -> io::Result<usize>,
) -> io::Result<Option<usize>> {
    match ready.try_io(|pipe| call(pipe.get_ref())) {
        Ok(result) => result.map(Some),
        Err(_would_block) => Ok(None),
    }
}
