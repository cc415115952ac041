//! Pipes, with a mode for each end.

#[cfg(feature = "tokio")]
mod task;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(unix)]
pub(crate) use unix::{Way, ends, set_capacity};
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(windows)]
pub(crate) use windows::overlaps;
#[cfg(windows)]
pub(crate) use windows::{Job, MOST_READ_BYTES, Relay, WriteEnd, duplex, of_read, of_write, room};

use std::fmt;
use std::io;

#[cfg(feature = "tokio")]
pub use task::{AsyncPipeReader, AsyncPipeWriter};
#[cfg(all(unix, feature = "tokio"))]
pub(crate) use task::{task_reader, task_writer};

/// How calls on one end of a pipe behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Mode {
    /// Calls block: what a child expects of its standard handles.
    #[default]
    Sync,
    /// Calls can be waited for together with others, on a thread or in a runtime, or kept from
    /// waiting ([`try_read_spare`](PipeReader::try_read_spare), [`try_write`](PipeWriter::try_write)).
    ///
    /// Unix: every end can do that, and this changes nothing: its open file stays in blocking mode, as
    /// others that share it expect. Windows: overlapped.
    Async,
}

/// What [`pair`] makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct PipeOptions {
    /// The mode of the end that is read.
    pub read: Mode,
    /// The mode of the end that is written.
    pub write: Mode,
    /// How many bytes the pipe holds at least; `None` is the system's default (64 KiB on Linux), and
    /// 64 KiB on Windows.
    pub capacity: Option<usize>,
}

/// Makes a pipe. Neither end is inherited by a child unless it is given to one.
///
/// # Platform
/// Linux: `pipe2(O_CLOEXEC)`, and `F_SETPIPE_SZ` for a capacity. A call that must not wait says so by
/// itself (`preadv2` and `pwritev2` with `RWF_NOWAIT`), whatever the [`Mode`], so that a clone of the
/// descriptor, in this process or in another one, blocks as it should. Before Linux 6.4, and on macOS,
/// pipes know no such flag. There a read that must not wait is `vmsplice` with `SPLICE_F_NONBLOCK`; on macOS,
/// and in a sandbox without that call, it is made after a `poll`, and does wait if somebody who shares the end
/// takes the bytes between the two. A write is made after a `poll` as well and takes at most `PIPE_BUF` bytes,
/// where the end has been seen by others (`as_fd`, `as_raw_fd`, `try_clone`); before that it has `O_NONBLOCK`,
/// which is taken away at that moment.
///
/// macOS:
/// `pipe`, then `FD_CLOEXEC`: a child that other code starts by `fork` between the two gets the
/// ends; one of ours never does. A pipe grows to 64 KiB by itself and no further, so a larger
/// capacity is refused.
///
/// Windows: `CreateNamedPipeW` under a random name in `\\.\pipe\LOCAL\`, as the first and only instance
/// and for this machine only, then `CreateFileW` for the other end; `FILE_FLAG_OVERLAPPED` on an end that
/// is [`Mode::Async`]. A pipe holds 16 KiB at least.
///
/// # Errors
/// No room for two more handles (`EMFILE`, `ENFILE`), or a capacity beyond what the system allows
/// (`/proc/sys/fs/pipe-max-size`, `EPERM`). Windows: eight names in a row that others have.
///
/// ```
/// # use pipewright_os::pipe::pair as pipe;
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

/// The end of a pipe that is read; the parent's end of a child's stdout or stderr.
///
/// `read` blocks until there are bytes or the last writer is gone, whatever the [`Mode`]. When
/// reads keep coming back full the pipe is enlarged (Linux), so that reader and writer take turns
/// less often.
///
/// # Platform
/// Unix: whoever else has the end, by a clone or a borrowed descriptor, finds it in blocking mode, as
/// std's are: see [`pair`].
///
/// Windows: a read of an overlapped end is waited for, or cancelled; a write of nothing at the other
/// end is no end of the stream. Which mode an end has that was made elsewhere is asked
/// (`NtQueryInformationFile`), and it keeps that mode when it is given away: a child's end has to be
/// made [`Mode::Sync`], as this crate's callers do.
///
/// # Drop
/// Closes the end: a writer that goes on writing then gets a broken pipe.
pub struct PipeReader(imp::Reader);

/// The end of a pipe that is written; the parent's end of a child's stdin.
///
/// `write` blocks until there is room, whatever the [`Mode`].
///
/// # Platform
/// Unix: whoever else has the end finds it in blocking mode: see [`pair`].
///
/// Windows: no `AsHandle`, because [`hang_up`](Self::hang_up) closes the handle.
///
/// # Drop
/// Closes the end: the reader sees the end of its input.
pub struct PipeWriter(imp::Writer);

impl PipeReader {
    /// Reads what is there, or waits for some, straight into the spare capacity of `buffer`; at most
    /// 128 KiB at a time.
    ///
    /// Returns the number of bytes appended; 0 is the end, or a buffer without spare capacity.
    ///
    /// # Errors
    /// Whatever `read` reports. `WouldBlock` does not happen: the call waits.
    pub fn read_spare(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        imp::read_spare(&self.0, buffer)
    }

    /// As [`read_spare`](Self::read_spare), but `WouldBlock` where nothing is there.
    ///
    /// # Errors
    /// `WouldBlock`, and whatever `read` reports. Windows: on an end that is [`Mode::Sync`] it may block.
    /// So may a read of a file on Unix, which has the disk do it.
    pub fn try_read_spare(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        imp::try_read_spare(&self.0, buffer)
    }

    /// How many bytes are in the pipe.
    ///
    /// # Platform
    /// Unix: `ioctl(FIONREAD)`. Windows: `PeekNamedPipe`, which waits while another thread is in a
    /// synchronous read of the same end.
    ///
    /// # Errors
    /// What the handle refers to cannot tell.
    pub fn available(&self) -> io::Result<usize> {
        imp::available(&self.0)
    }

    /// Another handle to the same end.
    ///
    /// # Errors
    /// No room for another handle.
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        imp::clone_reader(&self.0).map(PipeReader)
    }
}

impl PipeWriter {
    /// Writes what fits now; `WouldBlock` where nothing does.
    ///
    /// # Platform
    /// Windows: also where a read that asks for at least what the pipe holds is waiting at the other end, which
    /// counts as full there. A [wait](crate::mux::wait) writes then.
    ///
    /// # Errors
    /// `WouldBlock`, `BrokenPipe` where nobody reads any more, and whatever `write` reports. Windows:
    /// on an end that is [`Mode::Sync`] it may block. So may a write to a file on Unix.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        imp::try_write(&self.0, bytes)
    }

    /// Whether something can be written now, or writing would say at once why not.
    ///
    /// # Platform
    /// Unix: `poll(POLLOUT)`. Windows: an end that overlaps can always be tried, and a file takes
    /// everything. For another pipe, and for a console, the system cannot tell: always false.
    #[must_use]
    pub fn has_room(&self) -> bool {
        imp::has_room(&self.0)
    }

    /// Closes the end while others may hold references to it: the reader sees the end of its
    /// input, and whoever writes here next gets `BrokenPipe`.
    ///
    /// # Platform
    /// Unix: `dup3` (macOS: `dup2`) of a pipe whose reader is gone onto the number, which so stays
    /// taken. Windows: such a pipe takes the place of this one here, and the handle is closed; under
    /// another number, and as soon as no write is under way.
    ///
    /// # Errors
    /// No room for two more handles.
    pub fn hang_up(&self) -> io::Result<()> {
        imp::hang_up(&self.0)
    }

    /// How many of the bytes written have not been read.
    ///
    /// # Platform
    /// Linux: `ioctl(FIONREAD)`, which answers at both ends. macOS, Windows: no end that is written can
    /// tell; always an error (`Unsupported`).
    ///
    /// # Errors
    /// What the handle refers to cannot tell.
    pub fn unread(&self) -> io::Result<usize> {
        imp::unread(&self.0)
    }

    /// Another handle to the same end.
    ///
    /// # Errors
    /// No room for another handle.
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
