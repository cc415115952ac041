//! Calls that return `WouldBlock` instead of waiting, without an effect on other users of the open
//! file.
//!
//! `O_NONBLOCK` belongs to the open file: every user of it (a clone of the descriptor, another
//! process) would get `EAGAIN` from its own calls. `RWF_NOWAIT` and `MSG_DONTWAIT` belong to one
//! call.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::terminal;
use crate::base::test_hooks::{Forced, is_forced};

/// The number of bytes that a pipe surely takes if `poll` reports it writable (pipe(7)).
const ATOMIC_WRITE_BYTES: usize = libc::PIPE_BUF;

/// The number of bytes that a stream socket surely takes if `poll` reports it writable. macOS: `SO_SNDLOWAT`, which is 2048 unless
/// somebody lowers it; Linux: at least three quarters of the buffer are free.
pub(crate) const SOCKET_BYTES_AFTER_POLL: usize = 2048;

/// The method that keeps calls on one descriptor from blocking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NonblockMethod {
    /// Not known yet: depends on the kind of the file.
    Detect,
    /// Passes `RWF_NOWAIT` with each call.
    NowaitFlag,
    /// Passes `MSG_DONTWAIT` with each call: a socket. macOS ignores the flag when it sends, so that a write calls `poll` first and
    /// takes at most [`SOCKET_BYTES_AFTER_POLL`].
    DontwaitFlag,
    /// Reads with `vmsplice` and `SPLICE_F_NONBLOCK` from an end that is open for reading only. The
    /// kernel copies the bytes, as `read` does. Linux only.
    Splice,
    /// Calls `poll` first. The call still blocks if another reader of the same open file takes the
    /// bytes in between. A write takes at most [`ATOMIC_WRITE_BYTES`].
    PollFirst,
    /// Relies on `O_NONBLOCK`, which we have set on an open file that no other code has.
    OwnNonblock,
    /// A plain call: on a file, which waits for no other process, or on an open file of our own
    /// that was opened with `O_NONBLOCK`.
    Plain,
    /// A plain call on our side of a pseudo-terminal, which was opened with `O_NONBLOCK`.
    Terminal,
}

/// The non-blocking method of one descriptor, and a flag that says if other code has seen it.
#[derive(Debug)]
pub(super) struct Nonblock {
    method: AtomicU8,
    shared: AtomicBool,
}

/// Set when the first pipe of ours refuses `RWF_NOWAIT`.
static IS_FLAG_REFUSED: AtomicBool = AtomicBool::new(!cfg!(target_os = "linux"));

fn is_flag_refused() -> bool {
    is_forced(Forced::NoRwfNowait) || IS_FLAG_REFUSED.load(Ordering::Relaxed)
}

impl Nonblock {
    /// Returns the state of an end of a new pipe, which no other code has seen.
    pub(super) fn for_new_pipe() -> Nonblock {
        Nonblock {
            method: AtomicU8::new(NonblockMethod::NowaitFlag as u8),
            shared: AtomicBool::new(false),
        }
    }

    /// Returns the state of a descriptor that was made elsewhere.
    pub(super) fn for_foreign(method: NonblockMethod) -> Nonblock {
        Nonblock { method: AtomicU8::new(method as u8), shared: AtomicBool::new(true) }
    }

    /// Returns the state of a clone of the descriptor.
    pub(super) fn for_clone(&self) -> Nonblock {
        Nonblock::for_foreign(self.method())
    }

    /// Returns true if no other code has seen the descriptor, and its open file is in blocking
    /// mode.
    pub(super) fn is_unshared_and_blocking(&self) -> bool {
        self.method() != NonblockMethod::OwnNonblock && !self.shared.load(Ordering::SeqCst)
    }

    /// Returns true if the descriptor is our side of a pseudo-terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.method() == NonblockMethod::Terminal
    }

    /// Records that the descriptor is about to be exposed: from here on its open file is in
    /// blocking mode.
    pub(super) fn mark_shared(&self, fd: BorrowedFd<'_>) {
        if self.shared.load(Ordering::Relaxed) {
            return;
        }
        self.shared.store(true, Ordering::SeqCst);
        if self.method() == NonblockMethod::OwnNonblock {
            self.restore_blocking(fd);
        }
    }

    fn restore_blocking(&self, fd: BorrowedFd<'_>) {
        self.set_method(NonblockMethod::PollFirst);
        set_blocking(fd);
    }

    fn method(&self) -> NonblockMethod {
        const METHODS: [NonblockMethod; 8] = [
            NonblockMethod::Detect,
            NonblockMethod::NowaitFlag,
            NonblockMethod::DontwaitFlag,
            NonblockMethod::Splice,
            NonblockMethod::PollFirst,
            NonblockMethod::OwnNonblock,
            NonblockMethod::Plain,
            NonblockMethod::Terminal,
        ];
        METHODS
            .get(usize::from(self.method.load(Ordering::SeqCst)))
            .copied()
            .unwrap_or(NonblockMethod::PollFirst)
    }

    fn set_method(&self, method: NonblockMethod) {
        self.method.store(method as u8, Ordering::SeqCst);
    }

    /// Returns the method for a call, and determines it first if it is not known.
    fn method_for(&self, fd: BorrowedFd<'_>, writes: bool) -> NonblockMethod {
        match self.method() {
            NonblockMethod::Detect => {
                self.set_method(method_for_kind(fd));
                self.method_for(fd, writes)
            }
            NonblockMethod::NowaitFlag if is_flag_refused() => self.fall_back(fd, writes),
            method => method,
        }
    }

    /// Chooses another method after the kernel refused `RWF_NOWAIT`: Linux before 6.4, a FIFO that
    /// was opened by its name, another system.
    #[cold]
    fn fall_back(&self, fd: BorrowedFd<'_>, writes: bool) -> NonblockMethod {
        if !writes {
            let method =
                if can_splice(fd) { NonblockMethod::Splice } else { NonblockMethod::PollFirst };
            self.set_method(method);
            return method;
        }
        if self.shared.load(Ordering::SeqCst) || set_nonblocking(fd).is_err() {
            self.set_method(NonblockMethod::PollFirst);
            return NonblockMethod::PollFirst;
        }
        self.set_method(NonblockMethod::OwnNonblock);
        // Another thread may have exposed it meanwhile, before it could see the line above.
        if self.shared.load(Ordering::SeqCst) {
            self.restore_blocking(fd);
        }
        self.method()
    }

    /// Records that the kernel refused `RWF_NOWAIT`. If it refuses that for one pipe of ours, it
    /// does so for all.
    fn record_refusal(&self, fd: BorrowedFd<'_>, writes: bool) {
        if !self.shared.load(Ordering::SeqCst) {
            IS_FLAG_REFUSED.store(true, Ordering::Relaxed);
        }
        self.fall_back(fd, writes);
    }

    /// Reads available bytes. `is_ready`: `poll` has just reported some.
    pub(super) fn read(
        &self,
        fd: &OwnedFd,
        into: &mut [MaybeUninit<u8>],
        is_ready: bool,
    ) -> Result<usize, Errno> {
        let fd = fd.as_fd();
        loop {
            let done = match self.method_for(fd, false) {
                NonblockMethod::NowaitFlag => read_flagged(fd, into),
                NonblockMethod::DontwaitFlag => {
                    let got = rustix::net::recv(fd, &mut *into, RecvFlags::DONTWAIT);
                    got.map(|((filled, _), _)| filled.len())
                }
                NonblockMethod::Splice => read_spliced(fd, into),
                // Other code may have put a terminal into blocking mode.
                NonblockMethod::PollFirst | NonblockMethod::Terminal
                    if !is_ready && !is_ready_now(fd, PollFlags::IN) =>
                {
                    Err(Errno::AGAIN)
                }
                NonblockMethod::Terminal => terminal::read(fd, into),
                NonblockMethod::Detect
                | NonblockMethod::PollFirst
                | NonblockMethod::OwnNonblock
                | NonblockMethod::Plain => {
                    rustix::io::read(fd, &mut *into).map(|(filled, _)| filled.len())
                }
            };
            match done {
                Err(Errno::INTR) => {}
                Err(error) if self.method() == NonblockMethod::NowaitFlag && is_refusal(error) => {
                    self.record_refusal(fd, false);
                }
                Err(error)
                    if self.method() == NonblockMethod::Splice && is_splice_refused(error) =>
                {
                    self.set_method(NonblockMethod::PollFirst);
                }
                done => return done,
            }
        }
    }

    /// Writes what fits. `is_ready`: `poll` has just reported room.
    pub(super) fn write(&self, fd: &OwnedFd, bytes: &[u8], is_ready: bool) -> Result<usize, Errno> {
        let fd = fd.as_fd();
        loop {
            let done = match self.method_for(fd, true) {
                NonblockMethod::NowaitFlag => write_flagged(fd, bytes),
                NonblockMethod::DontwaitFlag if IS_SEND_FLAG_IGNORED => {
                    send_after_poll(fd, bytes, is_ready)
                }
                NonblockMethod::DontwaitFlag => rustix::net::send(fd, bytes, SendFlags::DONTWAIT),
                NonblockMethod::Splice | NonblockMethod::PollFirst | NonblockMethod::Terminal
                    if !is_ready && !is_ready_now(fd, PollFlags::OUT) =>
                {
                    Err(Errno::AGAIN)
                }
                NonblockMethod::Splice | NonblockMethod::PollFirst => {
                    rustix::io::write(fd, bytes.get(..ATOMIC_WRITE_BYTES).unwrap_or(bytes))
                }
                NonblockMethod::Terminal => terminal::write(fd, bytes),
                NonblockMethod::Detect | NonblockMethod::OwnNonblock | NonblockMethod::Plain => {
                    rustix::io::write(fd, bytes)
                }
            };
            match done {
                Err(Errno::INTR) => {}
                Err(error) if self.method() == NonblockMethod::NowaitFlag && is_refusal(error) => {
                    self.record_refusal(fd, true);
                }
                done => return done,
            }
        }
    }
}

const IS_SEND_FLAG_IGNORED: bool = !cfg!(target_os = "linux");

/// Sends what fits on a socket in blocking mode. `is_ready`: `poll` has just reported room.
fn send_after_poll(fd: BorrowedFd<'_>, bytes: &[u8], is_ready: bool) -> Result<usize, Errno> {
    if !is_ready && !is_ready_now(fd, PollFlags::OUT) {
        return Err(Errno::AGAIN);
    }
    let piece = bytes.get(..SOCKET_BYTES_AFTER_POLL).unwrap_or(bytes);
    rustix::net::send(fd, piece, SendFlags::empty())
}

/// Returns true if the error means that `RWF_NOWAIT` is not available: not for this file
/// (`EOPNOTSUPP`), this kernel (`EINVAL`), or in this sandbox.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)
}

/// Returns true if the error means that `vmsplice` is not available: not for this file (`EBADF`), or not in
/// this sandbox.
fn is_splice_refused(error: Errno) -> bool {
    matches!(error, Errno::BADF | Errno::NOSYS | Errno::INVAL | Errno::PERM)
}

fn method_for_kind(fd: BorrowedFd<'_>) -> NonblockMethod {
    let Ok(stat) = rustix::fs::fstat(fd) else { return NonblockMethod::Plain };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => NonblockMethod::NowaitFlag,
        FileType::Socket => NonblockMethod::DontwaitFlag,
        // RWF_NOWAIT would refuse data that is not in memory, and poll always reports a file as
        // ready.
        FileType::RegularFile | FileType::BlockDevice | FileType::Directory => {
            NonblockMethod::Plain
        }
        _ => NonblockMethod::PollFirst,
    }
}

/// Returns true if a call would now do something or fail.
pub(crate) fn is_ready_now(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, flags)];
    // An error of poll is not an error of the file: the call will report that one.
    rustix::event::poll(&mut polled, Some(&Default::default())) != Ok(0)
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)
}

/// Puts an open file into blocking mode.
pub(super) fn set_blocking(fd: BorrowedFd<'_>) {
    if let Ok(flags) = rustix::fs::fcntl_getfl(fd) {
        if flags.contains(OFlags::NONBLOCK) {
            // Ignored: F_SETFL on an open pipe cannot fail here.
            let _ = rustix::fs::fcntl_setfl(fd, flags - OFlags::NONBLOCK);
        }
    }
}

/// The offset that stands for the file's current position, of which a pipe has none.
#[cfg(target_os = "linux")]
const CURRENT_OFFSET: libc::c_long = -1;

#[cfg(target_os = "linux")]
fn read_flagged(fd: BorrowedFd<'_>, into: &mut [MaybeUninit<u8>]) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd;
    let buffer = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // By number: older C libraries have no such function, and rustix's takes no uninitialized
    // memory.
    // SAFETY: one block of memory that is borrowed mutably and outlives the call.
    let count = unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            fd.as_raw_fd(),
            &raw const buffer,
            1usize,
            CURRENT_OFFSET,
            CURRENT_OFFSET,
            libc::RWF_NOWAIT,
        )
    };
    usize::try_from(count).map_err(|_| last_error())
}

/// Returns true if `vmsplice` reads from this end. It writes to an end that is open for both (a FIFO,
/// `O_RDWR`).
#[cfg(target_os = "linux")]
fn can_splice(fd: BorrowedFd<'_>) -> bool {
    let mode = rustix::fs::fcntl_getfl(fd).map(|flags| flags & OFlags::RWMODE);
    !is_forced(Forced::NoVmsplice) && mode == Ok(OFlags::RDONLY)
}

/// Reads available bytes from an end for which [`can_splice`] returns true.
#[cfg(target_os = "linux")]
fn read_spliced(fd: BorrowedFd<'_>, into: &mut [MaybeUninit<u8>]) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd;
    let piece = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: one piece of memory that is ours to write to, and outlives the call. The end is open for reading
    // only, so the kernel copies to that memory and keeps no page of it.
    let count =
        unsafe { libc::vmsplice(fd.as_raw_fd(), &raw const piece, 1, libc::SPLICE_F_NONBLOCK) };
    usize::try_from(count).map_err(|_| last_error())
}

#[cfg(target_os = "linux")]
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(target_os = "linux")]
fn write_flagged(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    use rustix::io::ReadWriteFlags;
    rustix::io::pwritev2(fd, &[std::io::IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT)
}

#[cfg(not(target_os = "linux"))]
fn read_flagged(_: BorrowedFd<'_>, _: &mut [MaybeUninit<u8>]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

#[cfg(not(target_os = "linux"))]
fn can_splice(_: BorrowedFd<'_>) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn read_spliced(_: BorrowedFd<'_>, _: &mut [MaybeUninit<u8>]) -> Result<usize, Errno> {
    Err(Errno::NOSYS)
}

#[cfg(not(target_os = "linux"))]
fn write_flagged(_: BorrowedFd<'_>, _: &[u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_in_blocking_mode_takes_what_fits_and_no_send_waits() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (bytes, mut sent) = ([7; 3 * SOCKET_BYTES_AFTER_POLL], 0);
        loop {
            match send_after_poll(ours.as_fd(), &bytes, false) {
                Ok(count) => sent += count,
                Err(error) => break assert_eq!(error, Errno::AGAIN),
            }
        }
        assert!(sent >= SOCKET_BYTES_AFTER_POLL, "{sent}");
        drop(theirs);
    }
}
