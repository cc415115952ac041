//! The supervisor program, ready to be executed without being installed anywhere.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use crate::tree::linux::proc_is_ours;

/// What `build.rs` has made of `supervisor/main.rs`.
#[cfg(pipewright_supervisor)]
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/supervisor"));
/// It could not be made for this system.
#[cfg(not(pipewright_supervisor))]
const PROGRAM: &[u8] = &[];

static IMAGE: OnceLock<io::Result<OwnedFd>> = OnceLock::new();

/// A handle on the program.
///
/// # Errors
/// This machine does not let memory be executed (`vm.memfd_noexec`, a seccomp filter, SELinux), or
/// the program was left out of this build.
pub(crate) fn image() -> io::Result<BorrowedFd<'static>> {
    match IMAGE.get_or_init(make_and_try) {
        Ok(image) => Ok(image.as_fd()),
        Err(error) => Err(copy_of(error)),
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

fn make_and_try() -> io::Result<OwnedFd> {
    if crate::fallback::NO_SUPERVISOR {
        return Err(io::Error::other("left out of this build"));
    }
    if PROGRAM.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the supervisor was not made for this system",
        ));
    }
    // It finds whom to kill there; without it, it would hold a tree that it could not end.
    if !proc_is_ours() {
        return Err(io::Error::other("/proc does not show its processes"));
    }
    let image = make()?;
    crate::spawn::try_image(image.as_fd())?;
    Ok(image)
}

/// Writes the program into memory and seals it: what other code of this process does to the
/// handle, it stays what it is.
fn make() -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags};
    const NAME: &std::ffi::CStr = c"pipewright-supervisor";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Linux 6.3 wants to be told that it is to be executed, and older ones do not know the flag.
    let made = match rustix::fs::memfd_create(NAME, flags | MemfdFlags::EXEC) {
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
        made => made,
    };
    let mut file = std::fs::File::from(made?);
    file.write_all(PROGRAM)?;
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, all)?;
    // A file that is open for writing is not executed (ETXTBSY), so the handle to be kept is one
    // that only reads.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    Ok(std::fs::File::open(path)?.into())
}
