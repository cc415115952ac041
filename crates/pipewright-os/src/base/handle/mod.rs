//! Owned handles, the kinds of objects that they refer to, and their limit.

mod list;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::{fmt, io};

#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
use windows as imp;

#[cfg(all(windows, any(feature = "process", test)))]
pub(crate) use list::own_handle_count;
#[cfg(all(windows, test))]
pub(crate) use list::wait_for_fewer_handles;
pub use list::{OpenHandle, open_handles};
#[cfg(all(unix, feature = "ipc"))]
pub(crate) use unix::copy_of_number;
#[cfg(unix)]
pub(crate) use unix::{is_close_on_exec, kind_of_number};
#[cfg(all(windows, any(feature = "process", test)))]
pub(crate) use windows::inheritable;
#[cfg(windows)]
pub(crate) use windows::{
    OWNER_ONLY, SecurityDescriptor, copy_of, is_overlapped, kind_of, number_of, query, size_of_u32,
    timed_query,
};

/// An owned file descriptor (Unix) or HANDLE (Windows); closed when dropped.
///
/// Converts from and to the types of the standard library that own one: `File`, `OwnedFd` or
/// `OwnedHandle`, the ends of a child's pipes, and on Unix sockets. (A Windows socket is not such a
/// handle: `closesocket` closes it.)
///
/// ```
/// # use pipewright_os::base::handle::{Handle, HandleKind};
/// let file = Handle::from(std::fs::File::open(std::env::current_exe()?)?);
/// assert_eq!(file.kind()?, HandleKind::File);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Handle(imp::Owned);

/// The kind of object that a handle refers to.
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
    /// Returns the kind of object that the handle refers to.
    ///
    /// # Platform
    /// Unix: `fstat`. Windows: `GetFileType`; `GetFileInformationByHandleEx` for objects on a disk,
    /// `GetNamedPipeInfo` and `PeekNamedPipe` to tell a pipe from a socket. These calls wait while
    /// another thread, or another process that shares the pipe end, is in a synchronous call on it.
    /// So a separate thread makes them, and after a second without an answer the result is
    /// [`HandleKind::Unknown`].
    ///
    /// # Errors
    /// The error of the call; none is expected for an open handle.
    pub fn kind(&self) -> io::Result<HandleKind> {
        imp::kind(&self.0)
    }

    /// Duplicates the handle. Both refer to the same open file, and share its offset and blocking
    /// mode.
    ///
    /// Children do not inherit the duplicate unless it is listed.
    ///
    /// # Platform
    /// Unix: `fcntl(F_DUPFD_CLOEXEC)`. Windows: `DuplicateHandle`, not inheritable.
    ///
    /// # Errors
    /// No more handles are available (`EMFILE`).
    pub fn try_clone(&self) -> io::Result<Handle> {
        imp::duplicate(&self.0).map(Handle)
    }

    /// Duplicates the handle with that number in this process, regardless of its owner: one that a
    /// parent passed on, for example.
    ///
    /// # Platform
    /// Unix: `fcntl(F_DUPFD_CLOEXEC)`. Windows: `DuplicateHandle`; the number is the value of the
    /// HANDLE, and never a pseudo handle.
    ///
    /// # Errors
    /// No handle with that number is open (`EBADF`, `ERROR_INVALID_HANDLE`), or no more handles are
    /// available.
    pub fn copy_of_number(number: i32) -> io::Result<Handle> {
        imp::copy_of_number(number).map(Handle)
    }

    /// Returns the number of the handle in the operating system: the value of the descriptor or the
    /// HANDLE.
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

#[cfg(test)]
#[cfg(windows)]
mod tests;
