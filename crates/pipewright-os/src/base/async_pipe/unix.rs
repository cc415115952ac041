//! Registers each stream with the runtime, and reads or writes when the runtime reports it ready. An object that cannot
//! be registered is always ready.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{Interest, ReadBuf};

use super::{read_in_place, write_in_place};
use crate::base::pipe::{MOST_READ_BYTES, PipeReader, PipeWriter};

pub(crate) type Reader = Stream<PipeReader>;
pub(crate) type Writer = Stream<PipeWriter>;

/// An end of a pipe, or a standard stream.
#[derive(Debug)]
pub(crate) enum Stream<P: End> {
    /// This process does not have the stream.
    Closed,
    /// An object that cannot be waited for: it always has data or room, or is at its end.
    InPlace(P),
    Registered(AsyncFd<Registered<P>>),
    /// A writer that has been shut down.
    ShutDown,
}

/// An end as the runtime sees it. The runtime only polls its descriptor.
#[derive(Debug)]
pub(crate) struct Registered<P>(P);

/// One of the two ends.
pub(crate) trait End {
    const INTEREST: Interest;

    fn fd_for_wait(&self) -> BorrowedFd<'_>;
}

impl End for PipeReader {
    const INTEREST: Interest = Interest::READABLE;

    fn fd_for_wait(&self) -> BorrowedFd<'_> {
        PipeReader::fd_for_wait(self)
    }
}

impl End for PipeWriter {
    const INTEREST: Interest = Interest::WRITABLE;

    fn fd_for_wait(&self) -> BorrowedFd<'_> {
        PipeWriter::fd_for_wait(self)
    }
}

impl<P: End> AsRawFd for Registered<P> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd_for_wait().as_raw_fd()
    }
}

/// Registers an end, or returns it with the error.
fn register<P: End>(pipe: P) -> Result<Stream<P>, (P, io::Error)> {
    // SAFETY: it owns the descriptor, which stays open and the same until the drop: no other code can reach the end. So
    // the
    // `close` of a writer cannot replace the descriptor.
    let registered = unsafe { AsyncFd::register_with_interest(Registered(pipe), P::INTEREST) };
    match registered.map_err(|error| error.into_parts()) {
        Ok(registered) => Ok(Stream::Registered(registered)),
        Err((Registered(pipe), error)) => Err((pipe, error)),
    }
}

impl<P: End> Stream<P> {
    pub(super) fn of_pipe(pipe: P) -> io::Result<Stream<P>> {
        register(pipe).map_err(|(_, error)| error)
    }

    /// Registers a standard stream, if it can be waited for. An object on a disk cannot: epoll refuses it, and kqueue
    /// never reports its end.
    pub(crate) fn of_stdio(pipe: P, is_on_disk: bool) -> io::Result<Stream<P>> {
        if is_on_disk {
            return Ok(Stream::InPlace(pipe));
        }
        match register(pipe) {
            Err((pipe, error)) if cannot_be_watched(&error) => Ok(Stream::InPlace(pipe)),
            registered => registered.map_err(|(_, error)| error),
        }
    }
}

/// Returns true for the error of a device that is always ready: `EPERM` by epoll, `ENODEV` or
/// `EINVAL` by kqueue.
fn cannot_be_watched(error: &io::Error) -> bool {
    let number = Errno::from_io_error(error);
    matches!(number, Some(Errno::PERM | Errno::NODEV | Errno::INVAL))
}

impl Reader {
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let pipe = match self {
            Stream::Closed | Stream::ShutDown => return Poll::Ready(Ok(())),
            Stream::InPlace(pipe) => return read_in_place(cx, &*pipe, buffer),
            Stream::Registered(pipe) => pipe,
        };
        loop {
            let mut ready = ready!(pipe.poll_read_ready(cx))?;
            let room = buffer.remaining().min(MOST_READ_BYTES);
            let into = buffer.initialize_unfilled_to(room);
            if let Some(count) = try_call(&mut ready, |pipe| pipe.try_read(into))? {
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
        let pipe = match self {
            Stream::Closed => return Poll::Ready(Ok(bytes.len())),
            Stream::InPlace(pipe) => return write_in_place(cx, &*pipe, bytes),
            Stream::Registered(pipe) => pipe,
            Stream::ShutDown => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
        loop {
            let mut ready = ready!(pipe.poll_write_ready(cx))?;
            if let Some(count) = try_call(&mut ready, |pipe| pipe.try_write(bytes))? {
                return Poll::Ready(Ok(count));
            }
        }
    }

    pub(super) fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // This side of the system call has no buffer.
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        *self = Stream::ShutDown;
        Poll::Ready(Ok(()))
    }
}

/// Makes the call that the end was reported ready for. `None`: it was not ready after all.
fn try_call<P: End>(
    ready: &mut AsyncFdReadyGuard<'_, Registered<P>>,
    call: impl FnOnce(&P) -> io::Result<usize>,
) -> io::Result<Option<usize>> {
    match ready.try_io(|pipe| call(&pipe.get_ref().0)) {
        Ok(result) => result.map(Some),
        Err(_would_block) => Ok(None),
    }
}
