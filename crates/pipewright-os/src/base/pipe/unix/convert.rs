//! Conversions between pipe ends and descriptors.
//!
//! Every conversion that exposes a descriptor reports it to [`Nonblock`], so that other code never
//! finds the open file in non-blocking mode.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::grow::Growth;
use super::nonblock::{Nonblock, set_blocking};
use super::{NonblockMethod, PipeReader, PipeWriter, Reader, terminal};
use crate::base::handle::Handle;

/// Releases a descriptor in blocking mode, as std's are: a child whose stdin is `O_NONBLOCK` reads
/// `EAGAIN` and stops (moonbitlang/async#553, nodejs/node#42826).
fn into_blocking(fd: OwnedFd, nonblock: &Nonblock) -> OwnedFd {
    if nonblock.is_terminal() {
        terminal::note_blocking();
    }
    if !nonblock.is_unshared_and_blocking() {
        set_blocking(fd.as_fd());
    }
    fd
}

impl AsFd for PipeReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.nonblock.mark_shared(self.0.fd.as_fd());
        self.0.fd.as_fd()
    }
}

impl AsFd for PipeWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.nonblock.mark_shared(self.0.fd.as_fd());
        self.0.fd.as_fd()
    }
}

impl AsRawFd for PipeReader {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsRawFd for PipeWriter {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl From<OwnedFd> for PipeReader {
    fn from(fd: OwnedFd) -> Self {
        let nonblock = Nonblock::for_foreign(NonblockMethod::Detect);
        PipeReader(Reader { fd, nonblock, growth: Growth::default() })
    }
}

impl From<OwnedFd> for PipeWriter {
    fn from(fd: OwnedFd) -> Self {
        PipeWriter::with_method(fd, NonblockMethod::Detect)
    }
}

impl From<PipeReader> for OwnedFd {
    fn from(reader: PipeReader) -> Self {
        into_blocking(reader.0.fd, &reader.0.nonblock)
    }
}

impl From<PipeWriter> for OwnedFd {
    fn from(writer: PipeWriter) -> Self {
        into_blocking(writer.0.fd, &writer.0.nonblock)
    }
}

impl From<PipeReader> for Handle {
    fn from(reader: PipeReader) -> Self {
        Handle::from(OwnedFd::from(reader))
    }
}

impl From<PipeWriter> for Handle {
    fn from(writer: PipeWriter) -> Self {
        Handle::from(OwnedFd::from(writer))
    }
}

impl From<Handle> for PipeReader {
    fn from(handle: Handle) -> Self {
        PipeReader::from(OwnedFd::from(handle))
    }
}

impl From<Handle> for PipeWriter {
    fn from(handle: Handle) -> Self {
        PipeWriter::from(OwnedFd::from(handle))
    }
}
