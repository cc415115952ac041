//! Pipes, with a mode for each end.

#[cfg(any(windows, test))]
mod console_text;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(all(unix, feature = "tokio"))]
pub(crate) use unix::MOST_READ_BYTES;
#[cfg(all(unix, feature = "host"))]
pub(crate) use unix::set_pipe_capacity;
#[cfg(unix)]
pub(crate) use unix::{NonblockMethod, new_pipe};
#[cfg(all(unix, feature = "ipc"))]
pub(crate) use unix::{SOCKET_BYTES_AFTER_POLL, is_ready_now, wait_for};
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(windows)]
pub(crate) use windows::{
    MOST_READ_BYTES, WriteEnd, WriteRequest, WriterThread, map_read_result, map_write_result,
};
#[cfg(all(windows, feature = "ipc"))]
pub(crate) use windows::{duplex, room};

use std::{fmt, io};

/// The behaviour of calls on one end of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Mode {
    /// Calls block, as a child expects of its standard handles.
    #[default]
    Sync,
    /// Calls can be waited for together with others, on a thread or in a runtime, or made without
    /// blocking ([`try_read_spare`](PipeReader::try_read_spare),
    /// [`try_write`](PipeWriter::try_write)).
    ///
    /// Unix: every end can do that, so this changes nothing: the open file stays in blocking mode,
    /// as other processes that share it expect. Windows: overlapped.
    Async,
}

/// The options of [`pair`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct PipeOptions {
    /// The mode of the reading end.
    pub read: Mode,
    /// The mode of the writing end.
    pub write: Mode,
    /// The minimum number of bytes that the pipe can hold. `None` is the system's default (64 KiB
    /// on Linux), and 64 KiB on Windows.
    pub capacity: Option<usize>,
}

/// Makes a pipe. A child inherits an end only if it is given that end.
///
/// # Platform
/// Linux: `pipe2(O_CLOEXEC)`, and `F_SETPIPE_SZ` for a capacity. A call that must not block passes
/// a flag of its own (`preadv2` and `pwritev2` with `RWF_NOWAIT`) in either [`Mode`], so that a
/// clone of the descriptor, in this process or another, blocks as usual. Pipes before Linux 6.4 and
/// on macOS do not support the flag. There a read that must not block is `vmsplice` with
/// `SPLICE_F_NONBLOCK`. On macOS, and in a sandbox without that call, it follows a `poll`: it does
/// block if another reader of the same end takes the bytes in between. A write follows a `poll` as
/// well and writes at most `PIPE_BUF` bytes, if the end has been exposed (`as_fd`, `as_raw_fd`,
/// `try_clone`); until then the end has `O_NONBLOCK`, which the exposure removes.
///
/// macOS: `pipe`, then `FD_CLOEXEC`: a child that other code forks between the two gets the ends; a
/// child that this crate starts never does. A pipe grows to 64 KiB by itself and no further, so a
/// larger capacity is an error.
///
/// Windows: `CreateNamedPipeW` with a random name in `\\.\pipe\LOCAL\`, as the first and only
/// instance and for this machine only, then `CreateFileW` for the other end; `FILE_FLAG_OVERLAPPED`
/// on an end in [`Mode::Async`]. A pipe holds at least 16 KiB.
///
/// # Errors
/// Fewer than two more handles are available (`EMFILE`, `ENFILE`), or the capacity exceeds the system's
/// limit (`/proc/sys/fs/pipe-max-size`, `EPERM`). Windows: eight names in a row were taken.
///
/// ```
/// # use pipewright_os::base::pipe::pair as pipe;
/// use std::io::{Read, Write};
/// let (mut reader, mut writer) = pipe(Default::default())?;
/// writer.write_all(b"hello")?;
/// drop(writer);
/// let mut text = String::new();
/// reader.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "pipe2")]
#[doc(alias = "CreatePipe")]
pub fn pair(options: PipeOptions) -> io::Result<(PipeReader, PipeWriter)> {
    imp::pair(options)
}

/// The reading end of a pipe; the parent's end of a child's stdout or stderr.
///
/// `read` blocks until there are bytes or the last writer is gone, in either [`Mode`]. If reads
/// keep filling their buffers, the pipe is enlarged (Linux), so that reader and writer take turns
/// less often.
///
/// # Platform
/// Unix: every other user of the end, by a clone or a borrowed descriptor, finds it in blocking
/// mode, as std's pipes are: see [`pair`].
///
/// Windows: a read of an overlapped end is waited for, or cancelled. A write of zero bytes at the
/// other end does not end the stream. The mode of an end that was made elsewhere is queried
/// (`NtQueryInformationFile`). An end keeps its mode when it is given away: a child's end must be
/// made [`Mode::Sync`], as `pipewright` does.
///
/// # Drop
/// Closes the end: a writer that goes on writing then gets a broken pipe.
pub struct PipeReader(imp::Reader);

/// The writing end of a pipe; the parent's end of a child's stdin.
///
/// `write` blocks until there is room, in either [`Mode`].
///
/// # Platform
/// Unix: every other user of the end finds it in blocking mode: see [`pair`].
///
/// Windows: no `AsHandle`, because [`close`](Self::close) closes the handle.
///
/// # Drop
/// Closes the end: the reader sees the end of its input.
pub struct PipeWriter(imp::Writer);

impl PipeReader {
    /// Reads available bytes, or waits for some, into the spare capacity of `buffer`; at most 128
    /// KiB at a time.
    ///
    /// Returns the number of bytes appended; 0 at the end of the stream, or if the buffer has no
    /// spare capacity.
    ///
    /// # Errors
    /// The errors of `read`. Never `WouldBlock`: the call waits.
    pub fn read_spare(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        imp::read_spare(&self.0, buffer)
    }

    /// Reads as [`read_spare`](Self::read_spare) does, but returns `WouldBlock` instead of waiting.
    ///
    /// # Errors
    /// `WouldBlock`, and the errors of `read`. Windows: may block on an end in [`Mode::Sync`].
    /// Unix: a read of a file may block on the disk.
    pub fn try_read_spare(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        imp::try_read_spare(&self.0, buffer)
    }

    /// Returns the number of bytes in the pipe.
    ///
    /// # Platform
    /// Unix: `ioctl(FIONREAD)`. Windows: `PeekNamedPipe`, which waits while another thread is in a
    /// synchronous read of the same end.
    ///
    /// # Errors
    /// The object behind the handle does not support the query.
    pub fn available(&self) -> io::Result<usize> {
        imp::available(&self.0)
    }

    /// Returns the most bytes that the system can hold for this end if it reads from a
    /// pseudo-terminal, where they cannot be counted; `None` for a pipe.
    #[must_use]
    pub fn most_buffered_of_terminal(&self) -> Option<usize> {
        imp::most_buffered_of_terminal(&self.0)
    }

    /// Duplicates the handle of this end.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        imp::clone_reader(&self.0).map(PipeReader)
    }
}

impl PipeWriter {
    /// Writes the bytes that fit now; `WouldBlock` if none do.
    ///
    /// # Platform
    /// Windows: also `WouldBlock` while a read that asks for at least the capacity of the pipe is
    /// blocked at the other end: such a pipe counts as full. A [wait](crate::base::wait::any)
    /// writes even then.
    ///
    /// # Errors
    /// `WouldBlock`, `BrokenPipe` if there is no reader left, and the errors of `write`. Windows:
    /// may block on an end in [`Mode::Sync`]. Unix: a write to a file may block.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        imp::try_write(&self.0, bytes)
    }

    /// Returns true if a write would now succeed or fail at once.
    ///
    /// # Platform
    /// Unix: `poll(POLLOUT)`. Windows: true for an overlapped end, which never blocks, and for a
    /// file, which always has room. For another pipe, and for a console, the system cannot tell:
    /// always false.
    #[must_use]
    pub fn has_room(&self) -> bool {
        imp::has_room(&self.0)
    }

    /// Closes the end even if references to it remain: the reader sees the end of its input, and
    /// the next write here gets `BrokenPipe`.
    ///
    /// # Platform
    /// Unix: `dup3` (macOS: `dup2`) of a pipe without a reader onto the descriptor, so its number
    /// stays in use. Windows: such a pipe replaces this one, under another number, and the old
    /// handle is closed as soon as no write is in progress.
    ///
    /// # Errors
    /// Fewer than two more handles are available.
    pub fn close(&self) -> io::Result<()> {
        imp::close(&self.0)
    }

    /// Returns the number of written bytes that have not been read.
    ///
    /// # Platform
    /// Linux: `ioctl(FIONREAD)`, which works at both ends. macOS, Windows: a writing end cannot
    /// report it; always an error (`Unsupported`).
    ///
    /// # Errors
    /// The object behind the handle does not support the query.
    pub fn unread(&self) -> io::Result<usize> {
        imp::unread(&self.0)
    }

    /// Duplicates the handle of this end.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        imp::clone_writer(&self.0).map(PipeWriter)
    }
}

impl io::Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        imp::read(&self.0, buffer)
    }
}

impl io::Read for &PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        imp::read(&self.0, buffer)
    }
}

impl io::Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        imp::write(&self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nothing is buffered on this side of the system call.
        Ok(())
    }
}

impl io::Write for &PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        imp::write(&self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for PipeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PipeReader").field(&imp::reader_number(&self.0)).finish()
    }
}

impl fmt::Debug for PipeWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PipeWriter").field(&imp::writer_number(&self.0)).finish()
    }
}
