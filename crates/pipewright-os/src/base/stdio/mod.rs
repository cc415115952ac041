//! The null device and the standard streams, as handles and for tasks.

mod closed;

use std::io;

use crate::base::handle::Handle;
use crate::base::pipe::PipeWriter;
#[cfg(feature = "tokio")]
use crate::base::wait::current_runtime;

#[cfg(feature = "tokio")]
pub use crate::base::async_pipe::{AsyncStdin, AsyncStdout};
pub use closed::{
    OwnStdin, OwnStdout, fail_if_closed, keep_closed, stdin, stdout, was_closed, was_pipe_ignored,
};
#[cfg(all(windows, feature = "process"))]
pub(crate) use imp::standard;

/// Opens the null device for reading and writing.
///
/// # Platform
/// Unix: `/dev/null`. Windows: `\\.\NUL`.
///
/// # Errors
/// The device is missing or there is no room for another handle.
///
/// ```
/// # use pipewright_os::base::stdio::null;
/// let nothing = null()?;
/// # let _ = nothing;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn null() -> io::Result<Handle> {
    imp::null()
}

/// Returns a writer to this process's own stdout or stderr that a slow reader cannot block: if
/// [`has_room`](PipeWriter::has_room) is true, `try_write` does not block. `None`: the stream is
/// closed.
///
/// Bypasses std's buffer.
///
/// # Platform
/// `O_NONBLOCK` belongs to the open file, which is shared: the shell that started this process
/// would find its terminal non-blocking. Linux: a pipe or terminal is reopened through
/// `/proc/self/fd`, which makes an open file of our own, with `O_NONBLOCK`. If that is not possible
/// (no `/proc`, a terminal of another user, a socket, macOS), a duplicate of the handle is written
/// to in pieces of at most `PIPE_BUF` bytes (4096; macOS 512). A pipe has room for one after `poll`
/// reports it writable, unless another writer fills it in between. Terminals make no such promise
/// and count as writable with less room: a stopped one can then block this process. A file is
/// written to in place: the caller waits for the disk.
///
/// Windows: a duplicate of the handle. A thread of its own writes to a pipe or a console, after it
/// has flushed std's buffer for stdout; `has_room` is false. A wait that ends before the write
/// cancels it (`CancelSynchronousIo`). A write to a console with a text selection goes on, and the
/// next wait for the same bytes waits for it. A file is written to in place. The bytes are not
/// converted: a console shows them in its code page, like those of a child.
///
/// # Errors
/// No more handles are available.
pub fn console_writer(to_stderr: bool) -> io::Result<Option<PipeWriter>> {
    imp::console_writer(to_stderr)
}

/// Returns a writer to that file, pipe or terminal, with the guarantees of [`console_writer`].
///
/// # Platform
/// As [`console_writer`].
///
/// # Errors
/// No more handles are available.
pub fn writer_to(target: Handle) -> io::Result<PipeWriter> {
    imp::writer_to(target)
}

/// Duplicates this process's own stdin.
///
/// # Platform
/// Windows: `GetStdHandle`, `DuplicateHandle`; the same for the other two.
///
/// # Errors
/// stdin is closed, or missing (a program without a console), or no more handles are available.
pub fn console_in() -> io::Result<Handle> {
    imp::console(0)
}

/// Duplicates this process's own stdout.
///
/// # Errors
/// stdout is closed, or no more handles are available.
pub fn console_out() -> io::Result<Handle> {
    imp::console(1)
}

/// Duplicates this process's own stderr.
///
/// # Errors
/// stderr is closed, or no more handles are available.
pub fn console_err() -> io::Result<Handle> {
    imp::console(2)
}

/// Returns this process's own stdin, for tasks.
///
/// No read blocks the thread of the runtime, except on a file. Bytes in the buffer of
/// `std::io::stdin()` are not returned here. A closed stdin is at its end, as std's is.
///
/// # Platform
/// Unix: the open file is shared (with the shell, or the other processes of a pipeline), so its
/// mode does not change: `O_NONBLOCK` is not set while this is used, nor left over after an exit.
/// Linux: a pipe or terminal is reopened through `/proc/self/fd`, which makes a separate open file.
/// If that is refused, and on macOS, each call itself asks not to block, as in
/// [`pair`](crate::base::pipe::pair), which lists the cases that do block. A call on a terminal can
/// block too, if another process takes the line between the `poll` and the `read`. A socket is read
/// with `MSG_DONTWAIT`. A file, and any object that cannot be waited for (`/dev/null`), is read in
/// place: the calling thread waits for the disk.
///
/// Windows: a pipe is read as by [`into_async`](crate::base::pipe::PipeReader::into_async). A
/// console is read by a thread of its own, which starts a read when one is requested. A file is
/// read in place.
///
/// # Errors
/// `Unsupported` outside a tokio runtime. No more handles are available.
///
/// # Panics
/// The runtime was built without `enable_io` or, on Windows, `enable_time`.
///
/// ```no_run
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # use pipewright_os::base::stdio::stdin_async;
/// use tokio::io::AsyncReadExt;
/// let mut all = String::new();
/// stdin_async()?.read_to_string(&mut all).await?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[cfg(feature = "tokio")]
pub fn stdin_async() -> io::Result<AsyncStdin> {
    current_runtime()?;
    imp::stdin_async().map(AsyncStdin::from)
}

/// Returns this process's own stdout, for tasks.
///
/// No write blocks the thread of the runtime, except to a file. Bytes in the buffer of
/// `std::io::stdout()` are not written here: flush that first. A closed stdout accepts everything,
/// as std's does.
///
/// # Platform
/// Unix: as [`stdin_async`]. A terminal that cannot be reopened can block a write: it counts as
/// writable with less room than the write needs ([`console_writer`]).
///
/// Windows: a pipe that is not overlapped, and a console, get a writer thread of their own.
///
/// # Errors
/// `Unsupported` outside a tokio runtime. No more handles are available.
///
/// # Panics
/// The runtime was built without `enable_io`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # use pipewright_os::base::stdio::stdout_async;
/// use tokio::io::AsyncWriteExt;
/// let mut stdout = stdout_async()?;
/// stdout.write_all(b"hello\n").await?;
/// stdout.flush().await?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[cfg(feature = "tokio")]
pub fn stdout_async() -> io::Result<AsyncStdout> {
    current_runtime()?;
    imp::stdout_async(false).map(AsyncStdout::from)
}

/// Returns this process's own stderr, for tasks.
///
/// # Platform
/// As [`stdout_async`].
///
/// # Errors
/// As [`stdout_async`].
///
/// # Panics
/// As [`stdout_async`].
#[cfg(feature = "tokio")]
pub fn stderr_async() -> io::Result<AsyncStdout> {
    current_runtime()?;
    imp::stdout_async(true).map(AsyncStdout::from)
}

/// `/dev/null` and descriptors 0 to 2.
#[cfg(unix)]
mod imp {
    use std::fs::OpenOptions;
    use std::io;
    #[cfg(target_os = "linux")]
    use std::os::fd::AsRawFd;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::fs::{FileType, Stat};
    #[cfg(target_os = "linux")]
    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;

    #[cfg(feature = "tokio")]
    use crate::base::async_pipe::{Reader, Writer};
    use crate::base::handle::Handle;
    #[cfg(feature = "tokio")]
    use crate::base::pipe::PipeReader;
    use crate::base::pipe::{NonblockMethod, PipeWriter};

    pub(super) fn null() -> io::Result<Handle> {
        OpenOptions::new().read(true).write(true).open("/dev/null").map(Handle::from)
    }

    pub(super) fn console(number: i32) -> io::Result<Handle> {
        let owned = match number {
            0 => std::io::stdin().as_fd().try_clone_to_owned()?,
            1 => std::io::stdout().as_fd().try_clone_to_owned()?,
            _ => {
                let stderr = std::io::stderr();
                let borrowed: BorrowedFd<'_> = stderr.as_fd();
                borrowed.try_clone_to_owned()?
            }
        };
        Ok(Handle::from(owned))
    }

    pub(super) fn console_writer(to_stderr: bool) -> io::Result<Option<PipeWriter>> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let console = if to_stderr { stderr.as_fd() } else { stdout.as_fd() };
        match rustix::fs::fstat(console) {
            Ok(stat) => writer(console, &stat).map(Some),
            Err(Errno::BADF) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn writer_to(target: Handle) -> io::Result<PipeWriter> {
        writer(target.as_fd(), &rustix::fs::fstat(&target)?)
    }

    #[cfg(feature = "tokio")]
    pub(super) fn stdin_async() -> io::Result<Reader> {
        let stdin = io::stdin();
        match rustix::fs::fstat(&stdin) {
            Ok(stat) => Reader::of_stdio(own_reader(stdin.as_fd(), &stat)?, is_on_disk(&stat)),
            Err(Errno::BADF) => Ok(Reader::Closed),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn stdout_async(is_stderr: bool) -> io::Result<Writer> {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let stream = if is_stderr { stderr.as_fd() } else { stdout.as_fd() };
        match rustix::fs::fstat(stream) {
            Ok(stat) => Writer::of_stdio(writer(stream, &stat)?, is_on_disk(&stat)),
            Err(Errno::BADF) => Ok(Writer::Closed),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(feature = "tokio")]
    fn is_on_disk(stat: &Stat) -> bool {
        matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::RegularFile | FileType::BlockDevice | FileType::Directory
        )
    }

    /// Returns a reader of our own for the same file, pipe or terminal.
    #[cfg(feature = "tokio")]
    fn own_reader(target: BorrowedFd<'_>, stat: &Stat) -> io::Result<PipeReader> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        Ok(match reopen(target, stat, kind, false) {
            Some(own) => PipeReader::with_method(own, NonblockMethod::Plain),
            None => PipeReader::with_method(target.try_clone_to_owned()?, NonblockMethod::Detect),
        })
    }

    fn writer(target: BorrowedFd<'_>, stat: &Stat) -> io::Result<PipeWriter> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if let Some(own) = reopen(target, stat, kind, true) {
            return Ok(PipeWriter::with_method(own, NonblockMethod::Plain));
        }
        // Writes in pieces that fit, unless it is a file or a socket.
        Ok(PipeWriter::from(target.try_clone_to_owned()?))
    }

    /// Reopens the same pipe or terminal, for an open file of our own.
    #[cfg(target_os = "linux")]
    fn reopen(
        target: BorrowedFd<'_>,
        stat: &Stat,
        kind: FileType,
        writes: bool,
    ) -> Option<OwnedFd> {
        // Opening the controlling side of a terminal makes a new terminal.
        let is_ptmx = stat.st_rdev == rustix::fs::makedev(5, 2);
        let is_terminal = kind == FileType::CharacterDevice && io::IsTerminal::is_terminal(&target);
        if kind != FileType::Fifo && (is_ptmx || !is_terminal) {
            return None;
        }
        let path = format!("/proc/self/fd/{}", target.as_raw_fd());
        let access = if writes { OFlags::WRONLY } else { OFlags::RDONLY };
        let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // Ignored: the caller falls back to a duplicate.
        rustix::fs::open(path, flags, Mode::empty()).ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn reopen(_: BorrowedFd<'_>, _: &Stat, _: FileType, _: bool) -> Option<OwnedFd> {
        // Elsewhere /dev/fd returns another handle of the same open file.
        None
    }
}

/// `NUL`, and the standard handles.
#[cfg(windows)]
mod imp {
    use std::fs::OpenOptions;
    use std::io;
    use std::os::windows::io::OwnedHandle;

    use windows_sys::Win32::Foundation::{ERROR_INVALID_HANDLE, HANDLE};
    use windows_sys::Win32::System::Console::{
        GetStdHandle, STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE,
    };

    #[cfg(feature = "tokio")]
    use crate::base::async_pipe::{Reader, Writer};
    use crate::base::handle::{Handle, copy_of};
    #[cfg(feature = "tokio")]
    use crate::base::pipe::PipeReader;
    use crate::base::pipe::PipeWriter;

    pub(super) fn null() -> io::Result<Handle> {
        // The full device name: a relative one is looked up in the working directory first.
        let null = OpenOptions::new().read(true).write(true).open(r"\\.\NUL")?;
        Ok(Handle::of_synchronous(null.into()))
    }

    pub(super) fn console(number: i32) -> io::Result<Handle> {
        let handle = standard(number)
            .ok_or_else(|| io::Error::from_raw_os_error(ERROR_INVALID_HANDLE as i32))?;
        copy_of(handle, false).map(Handle::from)
    }

    pub(super) fn console_writer(to_stderr: bool) -> io::Result<Option<PipeWriter>> {
        let copy = copy_of_standard(if to_stderr { 2 } else { 1 })?;
        Ok(copy.map(|copy| PipeWriter::to_console(copy, !to_stderr)))
    }

    #[cfg(feature = "tokio")]
    pub(super) fn stdin_async() -> io::Result<Reader> {
        let Some(handle) = copy_of_standard(0)? else { return Ok(Reader::Closed) };
        let handle = Handle::from(handle);
        let kind = handle.kind()?;
        Reader::of_stdio(PipeReader::from(handle), kind)
    }

    #[cfg(feature = "tokio")]
    pub(super) fn stdout_async(is_stderr: bool) -> io::Result<Writer> {
        match console_writer(is_stderr)? {
            Some(pipe) => Writer::of_pipe(pipe),
            None => Ok(Writer::Closed),
        }
    }

    /// Duplicates a standard handle of this process; `None`: it is missing or closed.
    fn copy_of_standard(number: i32) -> io::Result<Option<OwnedHandle>> {
        let Some(handle) = standard(number) else { return Ok(None) };
        match copy_of(handle, false) {
            Ok(copy) => Ok(Some(copy)),
            // A number that was inherited without its handle, or whose handle has been closed.
            Err(error) if error.raw_os_error() == Some(ERROR_INVALID_HANDLE as i32) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn writer_to(target: Handle) -> io::Result<PipeWriter> {
        Ok(PipeWriter::from(OwnedHandle::from(target)))
    }

    /// Returns a standard handle of this process; `None`: there is none, as in a program without a
    /// console.
    ///
    /// The parent may have left any number there. -1 and -2 are pseudo handles for the process itself
    /// and its thread, and Microsoft's C library uses -2 for a missing stream. A duplicate would be a
    /// handle of this thread, with every right, and a child would get it.
    pub(crate) fn standard(number: i32) -> Option<HANDLE> {
        let which = match number {
            0 => STD_INPUT_HANDLE,
            1 => STD_OUTPUT_HANDLE,
            _ => STD_ERROR_HANDLE,
        };
        // SAFETY: one of the three valid names.
        let handle = unsafe { GetStdHandle(which) };
        Some(handle).filter(|handle| handle.addr() as isize > 0)
    }
}
