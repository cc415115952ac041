//! Each end is registered with the runtime, and read or written when that says it may be.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{Interest, ReadBuf};

use crate::base::pipe::{MOST_READ_BYTES, PipeReader, PipeWriter};

#[derive(Debug)]
pub(super) struct Reader(AsyncFd<OurReader>);

/// `None`: it has been shut down.
#[derive(Debug)]
pub(super) struct Writer(Option<AsyncFd<OurWriter>>);

/// An end whose descriptor the runtime gets, which does nothing with it but watch it.
#[derive(Debug)]
struct OurReader(PipeReader);

#[derive(Debug)]
struct OurWriter(PipeWriter);

impl AsRawFd for OurReader {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd_of_ours().as_raw_fd()
    }
}

impl AsRawFd for OurWriter {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd_of_ours().as_raw_fd()
    }
}

pub(super) fn reader(pipe: PipeReader) -> io::Result<Reader> {
    try_reader(pipe).map_err(|(_, error)| error)
}

pub(super) fn writer(pipe: PipeWriter) -> io::Result<Writer> {
    try_writer(pipe).map_err(|(_, error)| error)
}

/// As [`reader`], and returns the end where it cannot be registered.
pub(super) fn try_reader(pipe: PipeReader) -> Result<Reader, (PipeReader, io::Error)> {
    // SAFETY: it owns the descriptor, which stays what it is until it is dropped: nobody else can
    // get at the reader.
    let registered =
        unsafe { AsyncFd::register_with_interest(OurReader(pipe), Interest::READABLE) };
    match registered.map_err(|error| error.into_parts()) {
        Ok(registered) => Ok(Reader(registered)),
        Err((OurReader(pipe), error)) => Err((pipe, error)),
    }
}

/// As [`writer`], and returns the end where it cannot be registered.
pub(super) fn try_writer(pipe: PipeWriter) -> Result<Writer, (PipeWriter, io::Error)> {
    // SAFETY: as above; so nobody hangs it up.
    let registered =
        unsafe { AsyncFd::register_with_interest(OurWriter(pipe), Interest::WRITABLE) };
    match registered.map_err(|error| error.into_parts()) {
        Ok(registered) => Ok(Writer(Some(registered))),
        Err((OurWriter(pipe), error)) => Err((pipe, error)),
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
            if let Some(count) = try_call(&mut ready, |OurReader(pipe)| pipe.try_read(into))? {
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
            if let Some(count) = try_call(&mut ready, |OurWriter(pipe)| pipe.try_write(bytes))? {
                return Poll::Ready(Ok(count));
            }
        }
    }

    pub(super) fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is buffered on this side of the system call.
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0 = None;
        Poll::Ready(Ok(()))
    }
}

/// Makes the call that an end was ready for. `None`: it was not, after all.
fn try_call<P: AsRawFd>(
    ready: &mut AsyncFdReadyGuard<'_, P>,
    call: impl FnOnce(&P) -> io::Result<usize>,
) -> io::Result<Option<usize>> {
    match ready.try_io(|pipe| call(pipe.get_ref())) {
        Ok(result) => result.map(Some),
        Err(_would_block) => Ok(None),
    }
}
