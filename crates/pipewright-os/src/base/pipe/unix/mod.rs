//! Pairs of file descriptors, whose open files stay in blocking mode: calls return `WouldBlock` instead of waiting,
//! without an effect on other users of the open file.
//!
//! `O_NONBLOCK` belongs to the open file: every user of it (a clone of the descriptor, another
//! process) would get `EAGAIN` from its own calls. `RWF_NOWAIT` and `MSG_DONTWAIT` belong to one
//! call. Every conversion that exposes a descriptor reports it to [`Nonblock`], so that other code never
//! finds the open file in non-blocking mode.

mod terminal;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::{PipeOptions, PipeReader, PipeWriter};
use crate::base::handle::Handle;
use crate::base::poll::poll_again;
use crate::base::test_hooks::{Forced, is_forced};

/// The most that one read takes from a pipe, if the size is ours to choose. The kernel holds the
/// pipe's lock for the whole read, so a reader that takes a megabyte at once keeps its writer
/// waiting all that time.
pub(crate) const MOST_READ_BYTES: usize = 128 << 10;

pub(super) struct Reader {
    fd: OwnedFd,
    nonblock: Nonblock,
    growth: Growth,
}

pub(super) struct Writer {
    fd: OwnedFd,
    nonblock: Nonblock,
}

impl PipeWriter {
    /// Makes a writer for a descriptor whose non-blocking method is known.
    pub(crate) fn with_method(fd: OwnedFd, method: NonblockMethod) -> PipeWriter {
        PipeWriter(Writer { fd, nonblock: Nonblock::for_foreign(method) })
    }

    /// Returns the descriptor for an internal wait. It must not be exposed to other code.
    pub(crate) fn fd_for_wait(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl PipeReader {
    /// Makes a reader for a descriptor whose non-blocking method is known. It does not resize the
    /// pipe.
    pub(crate) fn with_method(fd: OwnedFd, method: NonblockMethod) -> PipeReader {
        PipeReader(Reader {
            fd,
            nonblock: Nonblock::for_foreign(method),
            growth: Growth::disabled(),
        })
    }

    /// Returns the descriptor for an internal wait. It must not be exposed to other code.
    pub(crate) fn fd_for_wait(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// Returns true if this is our side of a pseudo-terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.0.nonblock.is_terminal()
    }
}

pub(super) fn pair(options: PipeOptions) -> io::Result<(PipeReader, PipeWriter)> {
    // Neither end gets another mode: each call states for itself whether it may block.
    let (read, write) = new_pipe()?;
    if let Some(bytes) = options.capacity {
        set_pipe_capacity(&read, bytes)?;
    }
    let growth = match options.capacity {
        Some(_) => Growth::disabled(),
        None => Growth::default(),
    };
    let reader = Reader { fd: read, nonblock: Nonblock::for_new_pipe(), growth };
    Ok((PipeReader(reader), PipeWriter(Writer { fd: write, nonblock: Nonblock::for_new_pipe() })))
}

/// Makes a pipe whose ends children do not inherit.
#[cfg(target_os = "linux")]
pub(crate) fn new_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// Makes a pipe. There is no `pipe2`: a child that other code forks at this moment could inherit
/// the ends. Our children cannot (`POSIX_SPAWN_CLOEXEC_DEFAULT`).
#[cfg(not(target_os = "linux"))]
pub(crate) fn new_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe()?;
    for end in [&read, &write] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((read, write))
}

/// Sets the minimum number of bytes that a pipe can hold.
#[cfg(target_os = "linux")]
pub(crate) fn set_pipe_capacity(pipe: &OwnedFd, bytes: usize) -> io::Result<()> {
    Ok(rustix::pipe::fcntl_setpipe_size(pipe, bytes).map(drop)?)
}

/// Refuses a capacity beyond the size to which macOS grows a pipe by itself.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_pipe_capacity(_: &OwnedFd, bytes: usize) -> io::Result<()> {
    const MOST_BYTES: usize = 64 << 10;
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let words = "a pipe cannot be larger than 64 KiB on this system";
    Err(io::Error::new(io::ErrorKind::Unsupported, words))
}

pub(super) fn read(reader: &Reader, buffer: &mut [u8]) -> io::Result<usize> {
    let room = buffer.len();
    blocking_read(reader, uninit(buffer), room)
}

/// Reinterprets the bytes for calls that only write initialized ones.
fn uninit(buffer: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the same memory, borrowed for as long; no caller here writes uninitialized bytes to
    // it.
    unsafe { std::slice::from_raw_parts_mut(start, length) }
}

/// Reads with a plain call that blocks in the kernel. Retries after a `poll` if another user of the
/// open file has put it into non-blocking mode.
fn blocking_read(reader: &Reader, into: &mut [MaybeUninit<u8>], room: usize) -> io::Result<usize> {
    let is_terminal = reader.nonblock.is_terminal();
    loop {
        let done = match is_terminal {
            true => terminal::read(reader.fd.as_fd(), &mut *into),
            false => rustix::io::read(&reader.fd, &mut *into).map(|(filled, _)| filled.len()),
        };
        match done {
            Ok(count) => {
                reader.growth.record_read(&reader.fd, count, room);
                return Ok(count);
            }
            Err(error) => wait_and_retry(error, reader.fd.as_fd(), PollFlags::IN)?,
        }
    }
}

pub(super) fn read_spare(reader: &Reader, buffer: &mut Vec<u8>) -> io::Result<usize> {
    fill(buffer, |into| {
        let room = into.len();
        blocking_read(reader, into, room)
    })
}

pub(super) fn try_read_spare(reader: &Reader, buffer: &mut Vec<u8>) -> io::Result<usize> {
    read_spare_nonblocking(reader, buffer, false)
}

fn read_spare_nonblocking(
    reader: &Reader,
    buffer: &mut Vec<u8>,
    is_ready: bool,
) -> io::Result<usize> {
    fill(buffer, |into| {
        let room = into.len();
        let count = reader.nonblock.read(&reader.fd, into, is_ready)?;
        reader.growth.record_read(&reader.fd, count, room);
        Ok(count)
    })
}

/// Passes the spare capacity to a call, which returns the number of bytes that it has written
/// there.
fn fill(
    buffer: &mut Vec<u8>,
    call: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
) -> io::Result<usize> {
    let length = buffer.len();
    let room = (buffer.capacity() - length).min(MOST_READ_BYTES);
    let count = call(&mut buffer.spare_capacity_mut()[..room])?;
    // SAFETY: the call has initialized that many bytes after the length.
    unsafe { buffer.set_len(length + count) };
    Ok(count)
}

impl PipeReader {
    /// Reads available bytes into a slice; `WouldBlock` if there are none.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (reader, room) = (&self.0, buffer.len());
        let count = reader.nonblock.read(&reader.fd, uninit(buffer), false)?;
        reader.growth.record_read(&reader.fd, count, room);
        Ok(count)
    }

    /// Reads as [`try_read_spare`](PipeReader::try_read_spare) does, right after `poll` reported
    /// data.
    pub(crate) fn read_ready(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        read_spare_nonblocking(&self.0, buffer, true)
    }
}

impl PipeWriter {
    /// Writes as [`try_write`](PipeWriter::try_write) does, right after `poll` reported room.
    pub(crate) fn write_ready(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.nonblock.write(&self.0.fd, bytes, true)?)
    }
}

pub(super) fn write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
    let is_terminal = writer.nonblock.is_terminal();
    loop {
        let done = match is_terminal {
            true => terminal::write(writer.fd.as_fd(), bytes),
            false => rustix::io::write(&writer.fd, bytes),
        };
        match done {
            Ok(count) => return Ok(count),
            Err(error) => wait_and_retry(error, writer.fd.as_fd(), PollFlags::OUT)?,
        }
    }
}

pub(super) fn has_room(writer: &Writer) -> bool {
    is_ready_now(writer.fd.as_fd(), PollFlags::OUT)
}

pub(super) fn try_write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
    Ok(writer.nonblock.write(&writer.fd, bytes, false)?)
}

/// Returns `Ok` if the call should be repeated.
fn wait_and_retry(error: Errno, fd: BorrowedFd<'_>, flags: PollFlags) -> io::Result<()> {
    match error {
        Errno::INTR => Ok(()),
        Errno::AGAIN => wait_for(fd, flags),
        error => Err(error.into()),
    }
}

/// Waits until a call would do something, or a signal came.
pub(crate) fn wait_for(fd: BorrowedFd<'_>, flags: PollFlags) -> io::Result<()> {
    let mut polled = [PollFd::from_borrowed_fd(fd, flags)];
    match poll_again(&mut polled, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn close(writer: &Writer) -> io::Result<()> {
    let (read, broken) = new_pipe()?;
    drop(read);
    replace(&writer.fd, &broken)
}

/// Makes a descriptor refer to the open file of another one, without closing it in between.
#[cfg(target_os = "linux")]
fn replace(old: &OwnedFd, new: &OwnedFd) -> io::Result<()> {
    // SAFETY: two open descriptors. `old` stays open and owned throughout.
    match unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn replace(old: &OwnedFd, new: &OwnedFd) -> io::Result<()> {
    // There is no dup3. Until the next line a child that other code forks could inherit the
    // descriptor, which then is the writing end of a pipe without a reader.
    // SAFETY: as on Linux.
    if unsafe { libc::dup2(new.as_raw_fd(), old.as_raw_fd()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    rustix::io::fcntl_setfd(old, rustix::io::FdFlags::CLOEXEC)?;
    Ok(())
}

pub(super) fn available(reader: &Reader) -> io::Result<usize> {
    unread_bytes(reader.fd.as_fd())
}

pub(super) fn most_buffered_of_terminal(reader: &Reader) -> Option<usize> {
    reader.nonblock.is_terminal().then_some(terminal::MOST_BUFFERED_BYTES)
}

#[cfg(target_os = "linux")]
pub(super) fn unread(writer: &Writer) -> io::Result<usize> {
    unread_bytes(writer.fd.as_fd())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn unread(_: &Writer) -> io::Result<usize> {
    // FIONREAD at this end reports the other direction, which does not exist: always 0.
    let words = "only the reading end of a pipe can report the unread bytes";
    Err(io::Error::new(io::ErrorKind::Unsupported, words))
}

fn unread_bytes(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let bytes = rustix::io::ioctl_fionread(fd)?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

pub(super) fn clone_reader(reader: &Reader) -> io::Result<Reader> {
    reader.nonblock.mark_shared(reader.fd.as_fd());
    let (fd, nonblock) = (reader.fd.try_clone()?, reader.nonblock.for_clone());
    Ok(Reader { fd, nonblock, growth: Growth::default() })
}

pub(super) fn clone_writer(writer: &Writer) -> io::Result<Writer> {
    writer.nonblock.mark_shared(writer.fd.as_fd());
    Ok(Writer { fd: writer.fd.try_clone()?, nonblock: writer.nonblock.for_clone() })
}

pub(super) fn reader_number(reader: &Reader) -> RawFd {
    reader.fd.as_raw_fd()
}

pub(super) fn writer_number(writer: &Writer) -> RawFd {
    writer.fd.as_raw_fd()
}

/// The number of bytes that a pipe surely takes if `poll` reports it writable (pipe(7)).
const ATOMIC_WRITE_BYTES: usize = libc::PIPE_BUF;

/// The number of bytes that a stream socket surely takes if `poll` reports it writable. macOS: `SO_SNDLOWAT`, which is
/// 2048 unless somebody lowers it; Linux: at least three quarters of the buffer are free.
pub(crate) const SOCKET_BYTES_AFTER_POLL: usize = 2048;

/// The method that keeps calls on one descriptor from blocking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NonblockMethod {
    /// Not known yet: depends on the kind of the file.
    Detect,
    /// Passes `RWF_NOWAIT` with each call.
    NowaitFlag,
    /// Passes `MSG_DONTWAIT` with each call: a socket. macOS ignores the flag when it sends, so that a write calls
    /// `poll` first and takes at most [`SOCKET_BYTES_AFTER_POLL`].
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
struct Nonblock {
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
    fn for_new_pipe() -> Nonblock {
        Nonblock {
            method: AtomicU8::new(NonblockMethod::NowaitFlag as u8),
            shared: AtomicBool::new(false),
        }
    }

    /// Returns the state of a descriptor that was made elsewhere.
    fn for_foreign(method: NonblockMethod) -> Nonblock {
        Nonblock { method: AtomicU8::new(method as u8), shared: AtomicBool::new(true) }
    }

    /// Returns the state of a clone of the descriptor.
    fn for_clone(&self) -> Nonblock {
        Nonblock::for_foreign(self.method())
    }

    /// Returns true if no other code has seen the descriptor, and its open file is in blocking
    /// mode.
    fn is_unshared_and_blocking(&self) -> bool {
        self.method() != NonblockMethod::OwnNonblock && !self.shared.load(Ordering::SeqCst)
    }

    /// Returns true if the descriptor is our side of a pseudo-terminal.
    fn is_terminal(&self) -> bool {
        self.method() == NonblockMethod::Terminal
    }

    /// Records that the descriptor is about to be exposed: from here on its open file is in
    /// blocking mode.
    fn mark_shared(&self, fd: BorrowedFd<'_>) {
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
    fn read(
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
    fn write(&self, fd: &OwnedFd, bytes: &[u8], is_ready: bool) -> Result<usize, Errno> {
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
fn set_blocking(fd: BorrowedFd<'_>) {
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

// A pipe that its reader keeps finding full is enlarged.
//
// With a 64 KiB pipe, reader and writer take turns every 64 KiB; with 1 MiB they move a third more
// bytes per second. But pipe buffers are charged to the user, and a user past
// `pipe-user-pages-soft` (64 MiB by default, pipe(7)) gets two-page pipes from then on in *every*
// program. So the enlarged pipes of this process hold at most [`BUDGET_BYTES`] together. A reader
// that is dropped returns its share.

/// The size of an enlarged pipe: the default of `/proc/sys/fs/pipe-max-size`.
const LARGE_BYTES: usize = 1 << 20;

/// The number of bytes in full reads after which the writer counts as faster. Those of other reads count against it
/// twice: the reader meets a writer that it has just woken, and finds little, between two full pipes.
const FULL_BYTES: usize = 256 << 10;

/// The smallest read that counts. A smaller one says more about the caller's buffer than about the
/// pipe.
const MIN_READ_BYTES: usize = 4 << 10;

/// The limit for the sum of all enlarged pipes of this process.
const BUDGET_BYTES: usize = 16 << 20;

static ENLARGED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The state of one reader: the full reads so far, and the decision.
#[derive(Debug, Default)]
struct Growth {
    full_bytes: AtomicUsize,
    is_decided: AtomicBool,
    is_charged: AtomicBool,
}

impl Growth {
    /// Records a read of at most `room` bytes that returned `count`.
    fn record_read(&self, fd: &OwnedFd, count: usize, room: usize) {
        if self.is_decided.load(Ordering::Relaxed) || room < MIN_READ_BYTES {
            return;
        }
        // A read of a whole default pipe counts as full even if the buffer was larger.
        if count < room && count < (64 << 10) {
            let full = self.full_bytes.load(Ordering::Relaxed);
            self.full_bytes.store(full.saturating_sub(2 * count), Ordering::Relaxed);
            return;
        }
        let full = self.full_bytes.fetch_add(count, Ordering::Relaxed) + count;
        if full >= FULL_BYTES && !self.is_decided.swap(true, Ordering::Relaxed) {
            self.enlarge(fd);
        }
    }

    /// Returns a state that never enlarges, for a pipe of a chosen size.
    fn disabled() -> Growth {
        let growth = Growth::default();
        growth.is_decided.store(true, Ordering::Relaxed);
        growth
    }

    fn enlarge(&self, fd: &OwnedFd) {
        let enlarged = ENLARGED_BYTES.fetch_add(LARGE_BYTES, Ordering::Relaxed);
        // Ignored: a socket, a lower pipe-max-size or a user past the soft limit only means that
        // the pipe keeps its size.
        if enlarged + LARGE_BYTES <= BUDGET_BYTES && set_size(fd).is_ok() {
            self.is_charged.store(true, Ordering::Relaxed);
        } else {
            ENLARGED_BYTES.fetch_sub(LARGE_BYTES, Ordering::Relaxed);
        }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        if *self.is_charged.get_mut() {
            ENLARGED_BYTES.fetch_sub(LARGE_BYTES, Ordering::Relaxed);
        }
    }
}

#[cfg(target_os = "linux")]
fn set_size(fd: &OwnedFd) -> rustix::io::Result<()> {
    if rustix::pipe::fcntl_getpipe_size(fd)? >= LARGE_BYTES {
        // Another process has enlarged it; setting the size would shrink it.
        return Err(rustix::io::Errno::BUSY);
    }
    rustix::pipe::fcntl_setpipe_size(fd, LARGE_BYTES).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn set_size(_: &OwnedFd) -> rustix::io::Result<()> {
    // Only Linux lets a pipe be resized.
    Err(rustix::io::Errno::NOTSUP)
}

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

    #[cfg(target_os = "linux")]
    mod grown {
        use super::*;

        /// Returns the size of a new pipe after these reads of a buffer of 128 KiB, repeated 20 times.
        fn size_after(reads: &[usize]) -> rustix::io::Result<usize> {
            let (reader, _writer) = rustix::pipe::pipe()?;
            let growth = Growth::default();
            for count in reads.repeat(20) {
                growth.record_read(&reader, count, 128 << 10);
            }
            rustix::pipe::fcntl_getpipe_size(&reader)
        }

        #[test]
        fn a_writer_that_fills_the_pipe_again_and_again_gets_a_large_one() {
            assert_eq!(size_after(&[64 << 10]), Ok(LARGE_BYTES));
            // What a reader finds that has just woken the writer.
            assert_eq!(size_after(&[64 << 10, 4 << 10, 16 << 10]), Ok(LARGE_BYTES));
        }

        #[test]
        fn a_writer_that_is_slower_keeps_its_pipe() {
            assert_ne!(size_after(&[8 << 10]), Ok(LARGE_BYTES));
            assert_ne!(size_after(&[64 << 10, 20 << 10, 20 << 10]), Ok(LARGE_BYTES));
        }
    }
}
