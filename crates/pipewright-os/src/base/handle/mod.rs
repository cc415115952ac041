//! Owned handles, and what kind of thing each refers to.

#[cfg(windows)]
pub(crate) mod ask;
mod list;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(test)]
#[cfg(windows)]
mod tests;
#[cfg(windows)]
mod windows;
#[cfg(all(unix, feature = "ipc"))]
pub(crate) use unix::copy_of_number;
#[cfg(unix)]
pub(crate) use unix::{is_close_on_exec, kind_of_number};
#[cfg(windows)]
use windows as imp;
#[cfg(all(windows, any(feature = "process", test)))]
pub(crate) use windows::inheritable;
#[cfg(windows)]
pub(crate) use windows::{copy_of, kind_of, number_of, overlaps, query, size_of_u32};

#[cfg(all(windows, any(feature = "process", test)))]
pub(crate) use list::own_count;
pub use list::{OpenHandle, open_handles};

use std::fmt;
use std::io;

/// An owned file descriptor (Unix) or HANDLE (Windows); closed when dropped.
///
/// It converts from and to the types of the standard library that own one: `File`, `OwnedFd` or
/// `OwnedHandle`, the ends of a child's pipes, and on Unix sockets. (On Windows a socket is closed by
/// another call, and is no handle of this kind.)
///
/// ```
/// # use pipewright_os::base::handle::{Handle, HandleKind};
/// let file = Handle::from(std::fs::File::open(std::env::current_exe()?)?);
/// assert_eq!(file.kind()?, HandleKind::File);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Handle(imp::Owned);

/// What a handle refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HandleKind {
    /// A regular file.
    File,
    /// A pipe or FIFO.
    Pipe,
    /// A socket.
    Socket,
    /// A character device: a terminal or console, the null device.
    CharDevice,
    /// A directory.
    Directory,
    /// A symbolic link, opened as itself (`O_PATH | O_NOFOLLOW`, `FILE_FLAG_OPEN_REPARSE_POINT`).
    Symlink,
    /// A block device.
    BlockDevice,
    /// Something else: an eventfd, a pidfd, an epoll instance; an event, a process.
    Unknown,
}

impl Handle {
    /// What the handle refers to.
    ///
    /// # Platform
    /// Unix: `fstat`. Windows: `GetFileType`; `GetFileInformationByHandleEx` for what is on a disk,
    /// `GetNamedPipeInfo` and `PeekNamedPipe` to tell a pipe from a socket; these wait
    /// while another thread, or a process that shares it, is in a synchronous call on the same pipe end, so a
    /// thread asks, and after a second without an answer it is [`HandleKind::Unknown`].
    ///
    /// # Errors
    /// Whatever the call reports; a handle that is open has none in practice.
    pub fn kind(&self) -> io::Result<HandleKind> {
        imp::kind(&self.0)
    }

    /// A second handle to the same open file: it shares the file offset and the blocking mode.
    ///
    /// The copy is not inherited by children unless it is listed.
    ///
    /// # Platform
    /// Unix: `fcntl(F_DUPFD_CLOEXEC)`. Windows: `DuplicateHandle`, not inheritable.
    ///
    /// # Errors
    /// The process has no room for another handle (`EMFILE`).
    pub fn try_clone(&self) -> io::Result<Handle> {
        imp::duplicate(&self.0).map(Handle)
    }

    /// A copy of the handle that has that number in this process, whoever opened it: what a parent
    /// passed on, say.
    ///
    /// # Platform
    /// Unix: `fcntl(F_DUPFD_CLOEXEC)`. Windows: `DuplicateHandle`; the number is the value of the
    /// HANDLE, and never a pseudo handle.
    ///
    /// # Errors
    /// Nothing is open under that number (`EBADF`, `ERROR_INVALID_HANDLE`), or there is no room for another handle.
    pub fn copy_of_number(number: i32) -> io::Result<Handle> {
        imp::copy_of_number(number).map(Handle)
    }

    /// The number under which the operating system knows the handle: the value of the descriptor or
    /// the HANDLE.
    #[must_use]
    pub fn number(&self) -> i64 {
        imp::number(&self.0)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.number()).finish()
    }
}

impl fmt::Display for HandleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            HandleKind::File => "file",
            HandleKind::Pipe => "pipe",
            HandleKind::Socket => "socket",
            HandleKind::CharDevice => "char device",
            HandleKind::Directory => "directory",
            HandleKind::Symlink => "symlink",
            HandleKind::BlockDevice => "block device",
            HandleKind::Unknown => "unknown",
        })
    }
}
