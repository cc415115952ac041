//! The supervisor program, ready to be executed without being installed anywhere.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::generation::PerProcess;
use crate::base::test_hooks::{Forced, is_forced};
use crate::process::procfs::proc_is_ours;
use crate::process::status::ExitStatus;

#[cfg(test)]
#[path = "../../../../supervisor/sizes.rs"]
mod sizes;

/// The program that `build.rs` has made of `supervisor/main.rs`.
#[cfg(pipewright_supervisor)]
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/supervisor"));
/// Empty, because the program could not be built for this system.
#[cfg(not(pipewright_supervisor))]
const PROGRAM: &[u8] = &[];

static IMAGE: PerProcess<OnceLock<OwnedFd>> = PerProcess::new(OnceLock::new);
/// The program has been seen to run here and to do its work.
static PROVEN: AtomicBool = AtomicBool::new(false);
/// The program has been seen to fail here.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Returns a handle on the program. Until it [`is_proven`] nothing may depend on it.
///
/// # Errors
/// This machine does not allow memory to be executed (`vm.memfd_noexec`, a seccomp filter, SELinux), or the
/// program was left out of this build.
pub(crate) fn image() -> io::Result<BorrowedFd<'static>> {
    if REFUSED.load(Ordering::Relaxed) && !is_proven() {
        return Err(refused());
    }
    // Only success is remembered: most errors are gone the next moment, and the others come back at once.
    match IMAGE.get().get() {
        Some(image) => Ok(image.as_fd()),
        None => {
            let image = make()?;
            Ok(IMAGE.get().get_or_init(|| image).as_fd())
        }
    }
}

/// Returns true if the program is known to work here.
pub(crate) fn is_proven() -> bool {
    PROVEN.load(Ordering::Relaxed)
}

/// Records that the program works here, so that it is not tested again.
pub(crate) fn prove() {
    PROVEN.store(true, Ordering::Relaxed);
}

/// Records that the program does not work here, so that it is not tried again, if the error of a first try says so:
/// `None`, or the number of a refusal. Any other number may be gone the next moment. Returns the error of the start.
pub(crate) fn judge(error: io::Error) -> io::Error {
    use rustix::io::Errno;
    let is_refusal = match Errno::from_io_error(&error) {
        Some(errno) => matches!(
            errno,
            Errno::PERM
                | Errno::ACCESS
                | Errno::NOSYS
                | Errno::OPNOTSUPP
                | Errno::INVAL
                | Errno::NOEXEC
        ),
        None => true,
    };
    if !is_refusal {
        return error;
    }
    REFUSED.store(true, Ordering::Relaxed);
    refused()
}

/// Returns the error that a process which was to execute the program has exited with, if it is not success.
pub(crate) fn error_of(status: ExitStatus) -> io::Result<()> {
    match status.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        // Another process has killed it, which says nothing about this machine.
        None if status.signal() == Some(libc::SIGKILL) => {
            Err(io::Error::from_raw_os_error(libc::EAGAIN))
        }
        // A sandbox has ended it.
        None => Err(refused()),
    }
}

fn refused() -> io::Error {
    let message =
        "memory cannot be executed, or a sandbox refuses a call that the supervisor needs";
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

fn make() -> io::Result<OwnedFd> {
    if is_forced(Forced::NoSupervisor) {
        return Err(io::Error::other("left out of this build"));
    }
    if PROGRAM.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the supervisor was not built for this system",
        ));
    }
    // The supervisor finds the processes to kill there; without it, it would hold a tree that it could not
    // end.
    if !proc_is_ours()? {
        return Err(io::Error::other("/proc does not show the processes of this pid namespace"));
    }
    write()
}

/// Writes the program into memory and seals it, so that other code of this process cannot change it through
/// the handle.
fn write() -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags};
    const NAME: &std::ffi::CStr = c"pipewright-supervisor";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Linux 6.3 wants a flag for an executable memfd; earlier kernels do not know the flag.
    let made = match rustix::fs::memfd_create(NAME, flags | MemfdFlags::EXEC) {
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
        made => made,
    };
    let mut file = std::fs::File::from(made?);
    file.write_all(PROGRAM)?;
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, all)?;
    // A file that is open for writing is not executed (ETXTBSY), so keep a handle that only reads.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    Ok(std::fs::File::open(path)?.into())
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn rusage_fits_into_the_supervisors_buffer() {
        // In musl's struct, room follows that the kernel does not use.
        let last = std::mem::offset_of!(libc::rusage, ru_nivcsw);
        assert_eq!(sizes::RUSAGE_WORDS * 8, last + size_of::<libc::c_long>());
    }
}
