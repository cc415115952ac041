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
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::windows::fs::OpenOptionsExt as _;
    use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, IntoRawHandle, OwnedHandle};

    use super::{Handle, HandleKind, imp};
    use crate::base::pipe::{PipeOptions, pair};
    use crate::base::wake::Wake;

    /// Required to open a directory.
    const BACKUP_SEMANTICS: u32 = 0x0200_0000;

    fn exe() -> Handle {
        Handle::from(File::open(std::env::current_exe().unwrap()).unwrap())
    }

    #[test]
    fn every_kind_is_known() {
        let dir = OpenOptions::new()
            .read(true)
            .custom_flags(BACKUP_SEMANTICS)
            .open(std::env::temp_dir())
            .unwrap();
        let (reader, writer) = pair(PipeOptions::default()).unwrap();
        let wake = Wake::new().unwrap();
        let event = imp::copy_of(wake.as_handle().as_raw_handle(), false).unwrap();
        for (handle, kind) in [
            (exe(), HandleKind::File),
            (Handle::from(dir), HandleKind::Directory),
            (Handle::from(reader), HandleKind::Pipe),
            (Handle::from(writer), HandleKind::Pipe),
            (crate::base::stdio::null().unwrap(), HandleKind::CharDevice),
            (Handle::from(event), HandleKind::Unknown),
        ] {
            assert_eq!(handle.kind().unwrap(), kind, "{handle:?}");
        }
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let raw = std::os::windows::io::AsRawSocket::as_raw_socket(&socket) as usize;
        // SAFETY: open for as long as this is used.
        let socket_handle = unsafe {
            std::os::windows::io::BorrowedHandle::borrow_raw(std::ptr::without_provenance_mut(raw))
        };
        assert_eq!(imp::kind_of(socket_handle).unwrap(), HandleKind::Socket);
    }

    #[test]
    fn a_duplicate_refers_to_the_same_file_and_is_not_inheritable() {
        let first = exe();
        let second = first.try_clone().unwrap();
        let third = Handle::copy_of_number(i32::try_from(first.number()).unwrap()).unwrap();
        assert_ne!(first.number(), second.number());
        for copy in [&first, &second, &third] {
            assert!(!imp::inheritable(copy.as_handle()).unwrap());
            assert_eq!(copy.kind().unwrap(), HandleKind::File);
        }
        let given = imp::copy_of(first.as_raw_handle(), true).unwrap();
        assert!(imp::inheritable(given.as_handle()).unwrap());
        // The file offset is shared.
        let mut four = [0; 4];
        std::io::Read::read_exact(&mut File::from(second), &mut four).unwrap();
        let mut file = File::from(OwnedHandle::from(third));
        assert_eq!(std::io::Seek::stream_position(&mut file).unwrap(), 4);
    }

    #[test]
    fn a_number_that_is_not_open_is_an_error() {
        for number in [0, -1, -2, i32::MIN, 0x7fff_fff0] {
            let error = Handle::copy_of_number(number).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(6), "{number}: {error}");
        }
    }

    #[test]
    fn a_handle_converts_to_raw_and_back() {
        let raw = exe().into_raw_handle();
        // SAFETY: released above, and owned again here.
        let handle = unsafe { Handle::from_raw_handle(raw) };
        assert_eq!(handle.as_raw_handle(), raw);
        assert_eq!(handle.number(), raw.addr() as i64);
        assert_eq!(format!("{handle:?}"), format!("Handle({})", handle.number()));
    }
}
