//! Pipes are a pair of file descriptors, whose open files stay in blocking mode: see [`now`].

mod convert;
mod grow;
mod now;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::{PipeOptions, PipeReader, PipeWriter};
use crate::base::raw_pipe;
pub(crate) use now::Way;
use now::{Now, is_ready_now};

/// The most that one read takes out of a pipe, where the room is ours to choose. The kernel holds the
/// pipe's lock for the whole of a read, so a reader that takes a megabyte at once keeps its writer
/// waiting all that time.
pub(crate) const MOST_READ_BYTES: usize = 128 << 10;

pub(super) struct Reader {
    fd: OwnedFd,
    now: Now,
    growth: grow::Growth,
}

pub(super) struct Writer {
    fd: OwnedFd,
    now: Now,
}

impl PipeWriter {
    /// A writer to a descriptor of which is known how its calls are kept from waiting.
    pub(crate) fn that_waits_not(fd: OwnedFd, way: Way) -> PipeWriter {
        PipeWriter(Writer { fd, now: Now::of_foreign(way) })
    }

    /// The descriptor, for a wait of ours: nobody else gets it.
    pub(crate) fn fd_of_ours(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl PipeReader {
    /// A reader of a descriptor of which is known how its calls are kept from waiting, and whose pipe is left as
    /// large as it is.
    #[cfg(feature = "tokio")]
    pub(crate) fn that_waits_not(fd: OwnedFd, way: Way) -> PipeReader {
        PipeReader(Reader { fd, now: Now::of_foreign(way), growth: grow::Growth::never() })
    }

    /// The descriptor, for a wait of ours: nobody else gets it.
    pub(crate) fn fd_of_ours(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

pub(super) fn pair(options: PipeOptions) -> io::Result<(PipeReader, PipeWriter)> {
    // Neither end is put into another mode: every call says for itself whether it may wait.
    let (read, write) = raw_pipe::pipe()?;
    if let Some(bytes) = options.capacity {
        raw_pipe::set_capacity(&read, bytes)?;
    }
    let growth = match options.capacity {
        Some(_) => grow::Growth::never(),
        None => grow::Growth::default(),
    };
    let reader = Reader { fd: read, now: Now::of_own_pipe(), growth };
    Ok((PipeReader(reader), PipeWriter(Writer { fd: write, now: Now::of_own_pipe() })))
}

pub(super) fn read(reader: &Reader, buffer: &mut [u8]) -> io::Result<usize> {
    let room = buffer.len();
    blocking_read(reader, uninit(buffer), room)
}

/// The same bytes, for calls that only ever write initialized ones.
fn uninit(buffer: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the same memory, borrowed for as long; no caller here writes anything uninitialized to it.
    unsafe { std::slice::from_raw_parts_mut(start, length) }
}

/// A plain read, which waits in the kernel; whoever else shares the open file may have put it into
/// non-blocking mode.
fn blocking_read(reader: &Reader, into: &mut [MaybeUninit<u8>], room: usize) -> io::Result<usize> {
    loop {
        match rustix::io::read(&reader.fd, &mut *into) {
            Ok((filled, _)) => {
                let count = filled.len();
                reader.growth.note(&reader.fd, count, room);
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
    read_spare_now(reader, buffer, false)
}

fn read_spare_now(reader: &Reader, buffer: &mut Vec<u8>, is_ready: bool) -> io::Result<usize> {
    fill(buffer, |into| {
        let room = into.len();
        let count = reader.now.read(&reader.fd, into, is_ready)?;
        reader.growth.note(&reader.fd, count, room);
        Ok(count)
    })
}

/// Has a call fill the spare capacity, which returns how many bytes it has written.
fn fill(
    buffer: &mut Vec<u8>,
    call: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize>,
) -> io::Result<usize> {
    let length = buffer.len();
    let room = (buffer.capacity() - length).min(MOST_READ_BYTES);
    let count = call(&mut buffer.spare_capacity_mut()[..room])?;
    // SAFETY: the call has filled that many bytes behind the length.
    unsafe { buffer.set_len(length + count) };
    Ok(count)
}

impl PipeReader {
    /// Reads what is there into a slice; `WouldBlock` where nothing is.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (reader, room) = (&self.0, buffer.len());
        let count = reader.now.read(&reader.fd, uninit(buffer), false)?;
        reader.growth.note(&reader.fd, count, room);
        Ok(count)
    }

    /// As [`try_read_spare`](PipeReader::try_read_spare), where `poll` has just said that there is something.
    pub(crate) fn read_ready(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        read_spare_now(&self.0, buffer, true)
    }
}

impl PipeWriter {
    /// As [`try_write`](PipeWriter::try_write), where `poll` has just said that there is room.
    pub(crate) fn write_ready(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.now.write(&self.0.fd, bytes, true)?)
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
    is_ready_now(writer.fd.as_fd(), PollFlags::OUT)
}

pub(super) fn try_write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
    Ok(writer.now.write(&writer.fd, bytes, false)?)
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
    let (read, broken) = raw_pipe::pipe()?;
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
    reader.now.share(reader.fd.as_fd());
    let (fd, now) = (reader.fd.try_clone()?, reader.now.of_clone());
    Ok(Reader { fd, now, growth: grow::Growth::default() })
}

pub(super) fn clone_writer(writer: &Writer) -> io::Result<Writer> {
    writer.now.share(writer.fd.as_fd());
    Ok(Writer { fd: writer.fd.try_clone()?, now: writer.now.of_clone() })
}

pub(super) fn reader_number(reader: &Reader) -> RawFd {
    reader.fd.as_raw_fd()
}

pub(super) fn writer_number(writer: &Writer) -> RawFd {
    writer.fd.as_raw_fd()
}
