//! Calls that return `WouldBlock` instead of waiting, without others that share the open file noticing.
//!
//! `O_NONBLOCK` belongs to the open file: whoever shares it (a clone of the descriptor, another process)
//! would get `EAGAIN` from its own calls. `RWF_NOWAIT` and `MSG_DONTWAIT` belong to one call.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// For so many bytes there is room in a pipe that `poll` calls writable (pipe(7)).
const SURELY_TAKEN_BYTES: usize = libc::PIPE_BUF;

/// The way in which calls on one descriptor are kept from waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    /// Not known yet: depends on the kind of the file.
    Ask,
    /// `RWF_NOWAIT` for each call.
    Flag,
    /// `MSG_DONTWAIT` for each call: a socket.
    Socket,
    /// `vmsplice` with `SPLICE_F_NONBLOCK` for each read of an end that is open for reading alone. The kernel
    /// copies then, as `read` does. Linux only.
    Splice,
    /// `poll` before each call. Only another reader of the same open file can make that call wait, by
    /// taking the bytes in between. A write takes [`SURELY_TAKEN_BYTES`] at most.
    Poll,
    /// `O_NONBLOCK`, set by us on an open file that nobody else has.
    OwnMode,
    /// A plain call: of a file, which waits for nobody else, or of an open file of our own that was opened
    /// with `O_NONBLOCK`.
    Plain,
}

/// How one descriptor is kept from waiting, and whether others have seen it.
#[derive(Debug)]
pub(super) struct Now {
    way: AtomicU8,
    shared: AtomicBool,
}

/// Set when the first pipe of ours refuses `RWF_NOWAIT`.
static IS_FLAG_REFUSED: AtomicBool = AtomicBool::new(HAS_NO_FLAG);

#[cfg(target_os = "linux")]
const HAS_NO_FLAG: bool = crate::fallback::NO_RWF_NOWAIT;
/// No other system has one.
#[cfg(not(target_os = "linux"))]
const HAS_NO_FLAG: bool = true;

impl Now {
    /// For an end of a pipe that has just been made, and that nobody else has.
    pub(super) fn of_own_pipe() -> Now {
        Now { way: AtomicU8::new(Way::Flag as u8), shared: AtomicBool::new(false) }
    }

    /// For a descriptor that came from elsewhere.
    pub(super) fn of_foreign(way: Way) -> Now {
        Now { way: AtomicU8::new(way as u8), shared: AtomicBool::new(true) }
    }

    /// For a clone of the descriptor.
    pub(super) fn of_clone(&self) -> Now {
        Now::of_foreign(self.way())
    }

    /// Returns true if nobody else ever had the descriptor, and its open file is in blocking mode.
    pub(super) fn is_untouched(&self) -> bool {
        self.way() != Way::OwnMode && !self.shared.load(Ordering::SeqCst)
    }

    /// Notes that others are about to get the descriptor: from here on its open file is in blocking mode.
    pub(super) fn share(&self, fd: BorrowedFd<'_>) {
        if self.shared.load(Ordering::Relaxed) {
            return;
        }
        self.shared.store(true, Ordering::SeqCst);
        if self.way() == Way::OwnMode {
            self.leave_own_mode(fd);
        }
    }

    fn leave_own_mode(&self, fd: BorrowedFd<'_>) {
        self.set_way(Way::Poll);
        block(fd);
    }

    fn way(&self) -> Way {
        const WAYS: [Way; 7] =
            [Way::Ask, Way::Flag, Way::Socket, Way::Splice, Way::Poll, Way::OwnMode, Way::Plain];
        WAYS.get(usize::from(self.way.load(Ordering::SeqCst))).copied().unwrap_or(Way::Poll)
    }

    fn set_way(&self, way: Way) {
        self.way.store(way as u8, Ordering::SeqCst);
    }

    /// Returns the way to call, which is found out here where it is not known.
    fn way_of(&self, fd: BorrowedFd<'_>, writes: bool) -> Way {
        match self.way() {
            Way::Ask => {
                self.set_way(way_of_kind(fd));
                self.way_of(fd, writes)
            }
            Way::Flag if IS_FLAG_REFUSED.load(Ordering::Relaxed) => {
                self.do_without_flag(fd, writes)
            }
            way => way,
        }
    }

    /// The kernel refuses `RWF_NOWAIT`: Linux before 6.4, a FIFO that was opened by its name, another system.
    #[cold]
    fn do_without_flag(&self, fd: BorrowedFd<'_>, writes: bool) -> Way {
        if !writes {
            let way = if can_splice(fd) { Way::Splice } else { Way::Poll };
            self.set_way(way);
            return way;
        }
        if self.shared.load(Ordering::SeqCst) || set_nonblocking(fd).is_err() {
            self.set_way(Way::Poll);
            return Way::Poll;
        }
        self.set_way(Way::OwnMode);
        // Another thread may have shared it meanwhile, and not have seen the line above.
        if self.shared.load(Ordering::SeqCst) {
            self.leave_own_mode(fd);
        }
        self.way()
    }

    /// Notes that the kernel refused `RWF_NOWAIT`. Where a pipe of ours was refused, all are.
    fn note_refused(&self, fd: BorrowedFd<'_>, writes: bool) {
        if !self.shared.load(Ordering::SeqCst) {
            IS_FLAG_REFUSED.store(true, Ordering::Relaxed);
        }
        self.do_without_flag(fd, writes);
    }

    /// Reads what is there. `is_ready`: `poll` has just said that something is.
    pub(super) fn read(
        &self,
        fd: &OwnedFd,
        into: &mut [MaybeUninit<u8>],
        is_ready: bool,
    ) -> Result<usize, Errno> {
        let fd = fd.as_fd();
        loop {
            let done = match self.way_of(fd, false) {
                Way::Flag => read_flagged(fd, into),
                Way::Socket => {
                    let got = rustix::net::recv(fd, &mut *into, RecvFlags::DONTWAIT);
                    got.map(|((filled, _), _)| filled.len())
                }
                Way::Splice => read_spliced(fd, into),
                Way::Poll if !is_ready && !is_ready_now(fd, PollFlags::IN) => Err(Errno::AGAIN),
                Way::Ask | Way::Poll | Way::OwnMode | Way::Plain => {
                    rustix::io::read(fd, &mut *into).map(|(filled, _)| filled.len())
                }
            };
            match done {
                Err(Errno::INTR) => {}
                Err(error) if self.way() == Way::Flag && is_refusal(error) => {
                    self.note_refused(fd, false);
                }
                Err(error) if self.way() == Way::Splice && is_splice_refused(error) => {
                    self.set_way(Way::Poll);
                }
                done => return done,
            }
        }
    }

    /// Writes what fits. `is_ready`: `poll` has just said that something does.
    pub(super) fn write(&self, fd: &OwnedFd, bytes: &[u8], is_ready: bool) -> Result<usize, Errno> {
        let fd = fd.as_fd();
        loop {
            let done = match self.way_of(fd, true) {
                Way::Flag => write_flagged(fd, bytes),
                Way::Socket => rustix::net::send(fd, bytes, SendFlags::DONTWAIT),
                Way::Splice | Way::Poll if !is_ready && !is_ready_now(fd, PollFlags::OUT) => {
                    Err(Errno::AGAIN)
                }
                Way::Splice | Way::Poll => {
                    rustix::io::write(fd, bytes.get(..SURELY_TAKEN_BYTES).unwrap_or(bytes))
                }
                Way::Ask | Way::OwnMode | Way::Plain => rustix::io::write(fd, bytes),
            };
            match done {
                Err(Errno::INTR) => {}
                Err(error) if self.way() == Way::Flag && is_refusal(error) => {
                    self.note_refused(fd, true);
                }
                done => return done,
            }
        }
    }
}

/// Returns true if the error says that the call is not to be had with `RWF_NOWAIT`: no such flag for this file
/// (`EOPNOTSUPP`) or this kernel (`EINVAL`), or no such call in a sandbox.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)
}

/// Returns true if the error says that `vmsplice` is not to be had: no pipe, no such call, or not in a sandbox.
fn is_splice_refused(error: Errno) -> bool {
    matches!(error, Errno::BADF | Errno::NOSYS | Errno::INVAL | Errno::PERM)
}

fn way_of_kind(fd: BorrowedFd<'_>) -> Way {
    let Ok(stat) = rustix::fs::fstat(fd) else { return Way::Plain };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => Way::Flag,
        FileType::Socket => Way::Socket,
        // RWF_NOWAIT would refuse what is not in memory, and poll would call it ready for ever.
        FileType::RegularFile | FileType::BlockDevice | FileType::Directory => Way::Plain,
        _ => Way::Poll,
    }
}

/// Returns true if a call has something to do now, or an error to report.
pub(super) fn is_ready_now(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, flags)];
    // An error of poll is none of the file's: let the call find out.
    rustix::event::poll(&mut polled, Some(&Default::default())) != Ok(0)
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)
}

/// Puts an open file into blocking mode.
pub(super) fn block(fd: BorrowedFd<'_>) {
    if let Ok(flags) = rustix::fs::fcntl_getfl(fd) {
        if flags.contains(OFlags::NONBLOCK) {
            // Ignored: F_SETFL on an open pipe has no error left to report.
            let _ = rustix::fs::fcntl_setfl(fd, flags - OFlags::NONBLOCK);
        }
    }
}

/// The offset that means the file's own position: a pipe has none.
#[cfg(target_os = "linux")]
const NO_OFFSET: libc::c_long = -1;

#[cfg(target_os = "linux")]
fn read_flagged(fd: BorrowedFd<'_>, into: &mut [MaybeUninit<u8>]) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd;
    let piece = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // By its number: older C libraries have no such function, and rustix's takes no uninitialized memory.
    // SAFETY: one piece of memory that is ours to write to, and outlives the call.
    let count = unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            fd.as_raw_fd(),
            &raw const piece,
            1usize,
            NO_OFFSET,
            NO_OFFSET,
            libc::RWF_NOWAIT,
        )
    };
    usize::try_from(count).map_err(|_| last_error())
}

/// Returns true if `vmsplice` reads from this end. It writes to one that is open for both (a FIFO, `O_RDWR`).
#[cfg(target_os = "linux")]
fn can_splice(fd: BorrowedFd<'_>) -> bool {
    let mode = rustix::fs::fcntl_getfl(fd).map(|flags| flags & OFlags::RWMODE);
    !crate::fallback::NO_VMSPLICE && mode == Ok(OFlags::RDONLY)
}

/// Reads what a pipe has, of an end for which [`can_splice`] is true.
#[cfg(target_os = "linux")]
fn read_spliced(fd: BorrowedFd<'_>, into: &mut [MaybeUninit<u8>]) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd;
    let piece = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: one piece of memory that is ours to write to, and outlives the call. As the end is open for reading
    // alone, the kernel copies to that memory and keeps no page of it.
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
