//! Handles are file descriptors.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::fs::{FileType, RawMode};

use super::{Handle, HandleKind};

pub(super) type Owned = OwnedFd;

pub(super) fn kind(fd: &Owned) -> io::Result<HandleKind> {
    kind_of(fd.as_fd())
}

fn kind_of(fd: BorrowedFd<'_>) -> io::Result<HandleKind> {
    Ok(kind_of_mode(rustix::fs::fstat(fd)?.st_mode as _))
}

/// Returns the kind of the object that the descriptor refers to. The caller need not own it.
pub(crate) fn kind_of_number(number: RawFd) -> io::Result<HandleKind> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: an integer, for which the call fails if it is not open, and room for a stat.
    if unsafe { libc::fstat(number, stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: initialized by the call.
    Ok(kind_of_mode(unsafe { stat.assume_init() }.st_mode as _))
}

/// Returns true if exec closes the descriptor.
pub(crate) fn is_close_on_exec(number: RawFd) -> io::Result<bool> {
    // SAFETY: integers. The call fails for a descriptor that is not open.
    match unsafe { libc::fcntl(number, libc::F_GETFD) } {
        -1 => Err(io::Error::last_os_error()),
        flags => Ok(flags & libc::FD_CLOEXEC != 0),
    }
}

fn kind_of_mode(mode: RawMode) -> HandleKind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => HandleKind::File,
        FileType::Fifo => HandleKind::Pipe,
        FileType::Socket => HandleKind::Socket,
        FileType::CharacterDevice => HandleKind::CharDevice,
        FileType::Directory => HandleKind::Directory,
        FileType::Symlink => HandleKind::Symlink,
        FileType::BlockDevice => HandleKind::BlockDevice,
        _ => HandleKind::Unknown,
    }
}

pub(super) fn duplicate(fd: &Owned) -> io::Result<Owned> {
    fd.try_clone()
}

pub(crate) fn copy_of_number(number: RawFd) -> io::Result<Owned> {
    // SAFETY: integers. The call fails for a descriptor that is not open.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made by the call above, and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

pub(super) fn number(fd: &Owned) -> i64 {
    i64::from(fd.as_raw_fd())
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl IntoRawFd for Handle {
    fn into_raw_fd(self) -> RawFd {
        self.0.into_raw_fd()
    }
}

impl FromRawFd for Handle {
    unsafe fn from_raw_fd(fd: RawFd) -> Self {
        // SAFETY: the caller passes an open descriptor that has no other owner.
        Handle(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl From<OwnedFd> for Handle {
    fn from(fd: OwnedFd) -> Self {
        Handle(fd)
    }
}

impl From<Handle> for OwnedFd {
    fn from(handle: Handle) -> Self {
        handle.0
    }
}

impl From<Handle> for File {
    fn from(handle: Handle) -> Self {
        File::from(handle.0)
    }
}

/// Implements the conversion from the types of the standard library that own one descriptor and
/// release it.
macro_rules! from_owner {
    ($($owner:ty),* $(,)?) => {$(
        impl From<$owner> for Handle {
            fn from(owner: $owner) -> Self {
                Handle(OwnedFd::from(owner))
            }
        }
    )*};
}

from_owner!(
    File,
    std::process::ChildStdin,
    std::process::ChildStdout,
    std::process::ChildStderr,
    std::net::TcpStream,
    std::net::TcpListener,
    std::net::UdpSocket,
    std::os::unix::net::UnixStream,
    std::os::unix::net::UnixListener,
    std::os::unix::net::UnixDatagram,
);

#[cfg(feature = "os_pipe")]
from_owner!(os_pipe::PipeReader, os_pipe::PipeWriter);

#[cfg(pipewright_std_pipes)]
#[expect(clippy::incompatible_msrv, reason = "the build script has looked at the version")]
mod std_pipes {
    use super::*;

    from_owner!(std::io::PipeReader, std::io::PipeWriter);
}
