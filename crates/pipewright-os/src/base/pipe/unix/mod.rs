//! Pairs of file descriptors, whose open files stay in blocking mode: see [`nonblock`].

mod convert;
mod grow;
mod nonblock;
mod terminal;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::{PipeOptions, PipeReader, PipeWriter};
use crate::base::raw_pipe;
use nonblock::Nonblock;
#[cfg(feature = "ipc")]
pub(crate) use nonblock::SOCKET_BYTES_AFTER_POLL;
pub(crate) use nonblock::{NonblockMethod, is_ready_now};

/// The most that one read takes from a pipe, if the size is ours to choose. The kernel holds the
/// pipe's lock for the whole read, so a reader that takes a megabyte at once keeps its writer
/// waiting all that time.
pub(crate) const MOST_READ_BYTES: usize = 128 << 10;

pub(super) struct Reader {
    fd: OwnedFd,
    nonblock: Nonblock,
    growth: grow::Growth,
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
            growth: grow::Growth::disabled(),
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
    let (read, write) = raw_pipe::pipe()?;
    if let Some(bytes) = options.capacity {
        raw_pipe::set_capacity(&read, bytes)?;
    }
    let growth = match options.capacity {
        Some(_) => grow::Growth::disabled(),
        None => grow::Growth::default(),
    };
    let reader = Reader { fd: read, nonblock: Nonblock::for_new_pipe(), growth };
    Ok((PipeReader(reader), PipeWriter(Writer { fd: write, nonblock: Nonblock::for_new_pipe() })))
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
    match rustix::event::poll(&mut polled, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn close(writer: &Writer) -> io::Result<()> {
    let (read, broken) = raw_pipe::pipe()?;
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
    Ok(Reader { fd, nonblock, growth: grow::Growth::default() })
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
