//! Pipes are a pair of file descriptors; [`Mode::Async`] is `O_NONBLOCK`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Mode, PipeOptions, PipeReader, PipeWriter, imp};
use crate::handle::Handle;

#[path = "grow.rs"]
mod grow;

/// The most that one read takes out of a pipe, where the room is ours to choose. The kernel holds the
/// pipe's lock for the whole of a read, so a reader that takes a megabyte at once keeps its writer
/// waiting all that time.
pub(super) const MOST_READ_BYTES: usize = 128 << 10;

pub(super) struct Reader {
    fd: OwnedFd,
    growth: grow::Growth,
}

pub(super) struct Writer {
    fd: OwnedFd,
    /// The most that is written at once.
    most_bytes: usize,
}

impl Writer {
    fn new(fd: OwnedFd) -> Self {
        Writer { fd, most_bytes: usize::MAX }
    }
}

impl PipeWriter {
    /// An end of which each write takes at most so many bytes.
    pub(crate) fn with_writes_of(fd: OwnedFd, most_bytes: usize) -> PipeWriter {
        PipeWriter(Writer { fd, most_bytes })
    }
}

pub(super) fn pair(options: PipeOptions) -> io::Result<(PipeReader, PipeWriter)> {
    let (read, write) = ends()?;
    if let Some(bytes) = options.capacity {
        set_capacity(&read, bytes)?;
    }
    if options.read == Mode::Async {
        rustix::fs::fcntl_setfl(&read, OFlags::NONBLOCK)?;
    }
    if options.write == Mode::Async {
        // O_WRONLY is part of the flags but fcntl ignores the access mode (fcntl(2), F_SETFL).
        rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK)?;
    }
    let growth = match options.capacity {
        Some(_) => grow::Growth::never(),
        None => grow::Growth::default(),
    };
    Ok((PipeReader(Reader { fd: read, growth }), PipeWriter(Writer::new(write))))
}

/// The two ends of a new pipe, which no child gets that they are not given to.
#[cfg(target_os = "linux")]
pub(crate) fn ends() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// The two ends of a new pipe. There is no `pipe2`: for a moment a child that somebody else starts
/// by `fork` could get them. Ours cannot (`POSIX_SPAWN_CLOEXEC_DEFAULT`).
#[cfg(not(target_os = "linux"))]
pub(crate) fn ends() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe()?;
    for end in [&read, &write] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((read, write))
}

#[cfg(target_os = "linux")]
pub(crate) fn set_capacity(pipe: &OwnedFd, bytes: usize) -> io::Result<()> {
    Ok(rustix::pipe::fcntl_setpipe_size(pipe, bytes).map(drop)?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn set_capacity(_: &OwnedFd, bytes: usize) -> io::Result<()> {
    /// So far a pipe of macOS grows by itself when more is written than it holds.
    const MOST_BYTES: usize = 64 << 10;
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let words = "a pipe holds 64 KiB here, and cannot be made larger";
    Err(io::Error::new(io::ErrorKind::Unsupported, words))
}

impl Reader {
    fn new(fd: OwnedFd) -> Self {
        Reader { fd, growth: grow::Growth::default() }
    }
}

pub(super) fn read(reader: &Reader, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match try_read(reader, buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(reader.fd.as_fd(), PollFlags::IN)?;
            }
            done => return done,
        }
    }
}

/// As [`read`], but `WouldBlock` where nothing is there.
pub(super) fn try_read(reader: &Reader, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(&reader.fd, &mut *buffer) {
            Ok(count) => {
                reader.growth.note(&reader.fd, count, buffer.len());
                return Ok(count);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) fn read_spare(reader: &Reader, buffer: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        match try_read_spare(reader, buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(reader.fd.as_fd(), PollFlags::IN)?;
            }
            done => return done,
        }
    }
}

pub(super) fn try_read_spare(reader: &Reader, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let length = buffer.len();
    let room = (buffer.capacity() - length).min(MOST_READ_BYTES);
    loop {
        match rustix::io::read(&reader.fd, &mut buffer.spare_capacity_mut()[..room]) {
            Ok((filled, _)) => {
                let count = filled.len();
                // SAFETY: the call has filled that many bytes behind the length.
                unsafe { buffer.set_len(length + count) };
                reader.growth.note(&reader.fd, count, room);
                return Ok(count);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) fn write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::io::write(&writer.fd, bytes) {
            Ok(count) => return Ok(count),
            Err(error) => wait_and_retry(error, writer.fd.as_fd(), PollFlags::OUT)?,
        }
    }
}

pub(super) fn has_room(writer: &Writer) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(writer.fd.as_fd(), PollFlags::OUT)];
    // An error of poll is none of the pipe: let the write find out.
    rustix::event::poll(&mut polled, Some(&Default::default())) != Ok(0)
}

pub(super) fn try_write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
    let bytes = bytes.get(..writer.most_bytes).unwrap_or(bytes);
    loop {
        match rustix::io::write(&writer.fd, bytes) {
            Ok(count) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns `Ok` when the call is worth another try.
fn wait_and_retry(error: Errno, fd: BorrowedFd<'_>, flags: PollFlags) -> io::Result<()> {
    match error {
        Errno::INTR => Ok(()),
        Errno::AGAIN => wait_for(fd, flags),
        error => Err(error.into()),
    }
}

fn wait_for(fd: BorrowedFd<'_>, flags: PollFlags) -> io::Result<()> {
    let mut polled = [PollFd::from_borrowed_fd(fd, flags)];
    match rustix::event::poll(&mut polled, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn hang_up(writer: &Writer) -> io::Result<()> {
    let (read, broken) = ends()?;
    drop(read);
    replace(&writer.fd, &broken)
}

/// Makes a descriptor refer to what another one does, without it ever being closed in between.
#[cfg(target_os = "linux")]
fn replace(old: &OwnedFd, new: &OwnedFd) -> io::Result<()> {
    // SAFETY: two open descriptors. The number of `old` stays open and its owner's throughout.
    match unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn replace(old: &OwnedFd, new: &OwnedFd) -> io::Result<()> {
    // There is no dup3. Until the next line a child that somebody else starts by `fork` could get
    // it, and would have the end of a pipe that nobody reads.
    // SAFETY: as on Linux.
    if unsafe { libc::dup2(new.as_raw_fd(), old.as_raw_fd()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    rustix::io::fcntl_setfd(old, rustix::io::FdFlags::CLOEXEC)?;
    Ok(())
}

pub(super) fn available(reader: &Reader) -> io::Result<usize> {
    bytes_inside(reader.fd.as_fd())
}

#[cfg(target_os = "linux")]
pub(super) fn unread(writer: &Writer) -> io::Result<usize> {
    bytes_inside(writer.fd.as_fd())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn unread(_: &Writer) -> io::Result<usize> {
    // FIONREAD at this end tells of the other direction, which there is none of: always 0.
    let words = "only the end that reads can tell what is in a pipe";
    Err(io::Error::new(io::ErrorKind::Unsupported, words))
}

fn bytes_inside(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let bytes = rustix::io::ioctl_fionread(fd)?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

pub(super) fn clone_reader(reader: &Reader) -> io::Result<Reader> {
    reader.fd.try_clone().map(Reader::new)
}

pub(super) fn clone_writer(writer: &Writer) -> io::Result<Writer> {
    Ok(Writer { fd: writer.fd.try_clone()?, most_bytes: writer.most_bytes })
}

pub(super) fn reader_number(reader: &Reader) -> RawFd {
    reader.fd.as_raw_fd()
}

pub(super) fn writer_number(writer: &Writer) -> RawFd {
    writer.fd.as_raw_fd()
}

/// Gives a descriptor away in the mode in which std's are: a child whose stdin is `O_NONBLOCK`
/// reads `EAGAIN` and stops (moonbitlang/async#553, nodejs/node#42826).
fn give_away(fd: OwnedFd) -> OwnedFd {
    if let Ok(flags) = rustix::fs::fcntl_getfl(&fd) {
        if flags.contains(OFlags::NONBLOCK) {
            // Ignored: F_SETFL on an open pipe has no error left to report.
            let _ = rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK);
        }
    }
    fd
}

impl AsFd for PipeReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl AsFd for PipeWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl AsRawFd for PipeReader {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd.as_raw_fd()
    }
}

impl AsRawFd for PipeWriter {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd.as_raw_fd()
    }
}

impl From<OwnedFd> for PipeReader {
    fn from(fd: OwnedFd) -> Self {
        PipeReader(imp::Reader::new(fd))
    }
}

impl From<OwnedFd> for PipeWriter {
    fn from(fd: OwnedFd) -> Self {
        PipeWriter(Writer::new(fd))
    }
}

impl From<PipeReader> for OwnedFd {
    fn from(reader: PipeReader) -> Self {
        give_away(reader.0.fd)
    }
}

impl From<PipeWriter> for OwnedFd {
    fn from(writer: PipeWriter) -> Self {
        give_away(writer.0.fd)
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
