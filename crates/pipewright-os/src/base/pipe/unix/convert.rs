//! The ends as descriptors, and descriptors as ends.
//!
//! Every way on which others get a descriptor tells [`Now`], so that they never find its open file in
//! non-blocking mode.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::grow::Growth;
use super::now::{Now, block};
use super::{PipeReader, PipeWriter, Reader, Way};
use crate::base::handle::Handle;

/// Gives a descriptor away in the mode in which std's are: a child whose stdin is `O_NONBLOCK`
/// reads `EAGAIN` and stops (moonbitlang/async#553, nodejs/node#42826).
fn give_away(fd: OwnedFd, now: &Now) -> OwnedFd {
    if !now.is_untouched() {
        block(fd.as_fd());
    }
    fd
}

impl AsFd for PipeReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.now.share(self.0.fd.as_fd());
        self.0.fd.as_fd()
    }
}

impl AsFd for PipeWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.now.share(self.0.fd.as_fd());
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
        let now = Now::of_foreign(Way::Ask);
        PipeReader(Reader { fd, now, growth: Growth::default() })
    }
}

impl From<OwnedFd> for PipeWriter {
    fn from(fd: OwnedFd) -> Self {
        PipeWriter::that_waits_not(fd, Way::Ask)
    }
}

impl From<PipeReader> for OwnedFd {
    fn from(reader: PipeReader) -> Self {
        give_away(reader.0.fd, &reader.0.now)
    }
}

impl From<PipeWriter> for OwnedFd {
    fn from(writer: PipeWriter) -> Self {
        give_away(writer.0.fd, &writer.0.now)
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
