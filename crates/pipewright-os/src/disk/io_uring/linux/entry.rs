//! The io_uring entry of a request.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use io_uring::opcode::{AsyncCancel, Fallocate, Fsync, PollAdd, Read, Write};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};

use crate::disk::file::{Action, FileRequest};

/// Returns the entry for a request. It refers to the request's file and memory, and owns neither.
pub(super) fn of(request: &FileRequest) -> Entry {
    let fd = Fd(request.file.as_fd().as_raw_fd());
    // At most 0x7ffff000.
    let left = request.left() as u32;
    // Inside the allocation, or at its end: `from` is at most the length.
    let start = request.buffer.start().as_ptr().wrapping_add(request.from);
    let entry = match request.action {
        Action::Read => Read::new(fd, start, left).offset(request.offset).build(),
        Action::Write => Write::new(fd, start, left).offset(request.offset).build(),
        Action::SyncAll => Fsync::new(fd).build(),
        Action::SyncData => Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        Action::Allocate(bytes) => Fallocate::new(fd, bytes).offset(request.offset).build(),
    };
    // Not on the first try, because it would use a kernel thread unnecessarily. Without the flag, a request
    // that failed with EAGAIN more than once would fail again.
    if request.may_wait { entry.flags(Flags::ASYNC) } else { entry }
}

/// Returns the entry that cancels another one.
pub(super) fn cancel(of: u64) -> Entry {
    AsyncCancel::new(of).build()
}

/// Returns the entry that completes when the descriptor is readable.
pub(super) fn readable(fd: BorrowedFd<'_>) -> Entry {
    PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build()
}
