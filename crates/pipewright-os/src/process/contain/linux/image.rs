//! The supervisor program, ready to be executed without being installed anywhere.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::generation::PerProcess;
use crate::process::procfs::proc_is_ours;

#[cfg(test)]
#[path = "../../../../supervisor/sizes.rs"]
mod sizes;

/// What `build.rs` has made of `supervisor/main.rs`.
#[cfg(pipewright_supervisor)]
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/supervisor"));
/// It could not be made for this system.
#[cfg(not(pipewright_supervisor))]
const PROGRAM: &[u8] = &[];

static IMAGE: PerProcess<io::Result<OwnedFd>> = PerProcess::new(make);
/// It has been seen to run here and to do its work.
static PROVEN: AtomicBool = AtomicBool::new(false);
/// It has been seen not to.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// A handle on the program. Until it [`is_proven`] nothing may depend on it.
///
/// # Errors
/// This machine does not let memory be executed (`vm.memfd_noexec`, a seccomp filter, SELinux), or
/// the program was left out of this build.
pub(crate) fn image() -> io::Result<BorrowedFd<'static>> {
    match IMAGE.get() {
        Ok(_) if REFUSED.load(Ordering::Relaxed) && !is_proven() => Err(refused()),
        Ok(image) => Ok(image.as_fd()),
        Err(error) => Err(copy_of(error)),
    }
}

/// Whether it is known to work here.
pub(crate) fn is_proven() -> bool {
    PROVEN.load(Ordering::Relaxed)
}

/// It works here: nobody has to find out any more.
pub(crate) fn prove() {
    PROVEN.store(true, Ordering::Relaxed);
}

/// It does not work here: nobody tries again. In words.
pub(crate) fn refuse() -> io::Error {
    REFUSED.store(true, Ordering::Relaxed);
    refused()
}

fn refused() -> io::Error {
    let words = "memory cannot be executed, or a call that it needs is refused";
    io::Error::new(io::ErrorKind::PermissionDenied, words)
}

fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

fn make() -> io::Result<OwnedFd> {
    if crate::base::fallback::NO_SUPERVISOR {
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
    write()
}

/// Writes the program into memory and seals it: what other code of this process does to the
/// handle, it stays what it is.
fn write() -> io::Result<OwnedFd> {
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

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn the_kernel_writes_no_more_than_the_supervisor_has_room_for() {
        // musl's is followed by room that the kernel does not know of.
        let last = std::mem::offset_of!(libc::rusage, ru_nivcsw);
        assert_eq!(sizes::RUSAGE_WORDS * 8, last + size_of::<libc::c_long>());
    }
}
