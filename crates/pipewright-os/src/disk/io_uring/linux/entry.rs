//! What a request looks like to io_uring.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use io_uring::opcode::{AsyncCancel, Fallocate, Fsync, PollAdd, Read, Write};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};

use crate::disk::file::{Action, Request};

/// The entry for a request. It refers to the file and the memory of the request, and owns neither.
pub(super) fn of(request: &Request) -> Entry {
    let fd = Fd(request.file.as_fd().as_raw_fd());
    // At most 0x7ffff000.
    let left = request.left() as u32;
    // Inside the allocation, or its end: a request's place is at most its length.
    let start = request.buffer.start().as_ptr().wrapping_add(request.from);
    let entry = match request.action {
        Action::Read => Read::new(fd, start, left).offset(request.offset).build(),
        Action::Write => Write::new(fd, start, left).offset(request.offset).build(),
        Action::SyncAll => Fsync::new(fd).build(),
        Action::SyncData => Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        Action::Allocate(bytes) => Fallocate::new(fd, bytes).offset(request.offset).build(),
    };
    // Never at first: a thread of the kernel would be used where none is needed. A request that was
    // answered with EAGAIN more than once would be so again without one.
    if request.may_wait { entry.flags(Flags::ASYNC) } else { entry }
}

/// The entry that cancels another one.
pub(super) fn cancel(of: u64) -> Entry {
    AsyncCancel::new(of).build()
}

/// The entry that is done when there is something to read.
pub(super) fn readable(fd: BorrowedFd<'_>) -> Entry {
    PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build()
}
