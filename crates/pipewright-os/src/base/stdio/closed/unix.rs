//! Closed descriptors and an ignored SIGPIPE, found by a function that runs before std's own start.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use rustix::fs::{Mode, OFlags};

/// The closed ones of the descriptors 0 to 2, as bits.
static CLOSED: AtomicU8 = AtomicU8::new(0);
/// SIGPIPE was ignored. std ignores it later in any case.
static IGNORES_PIPE: AtomicBool = AtomicBool::new(false);

/// The C runtime calls the functions of this section before `main`.
// SAFETY: the section has pointers to functions of this type. The function calls the kernel, and nothing of std.
#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    for number in 0..3 {
        // SAFETY: numbers.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
    // SAFETY: plain data, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no action is set, and there is room for the present one.
    let read = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    IGNORES_PIPE.store(read == 0 && action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}

pub(super) fn was_closed(number: u8) -> bool {
    number < 3 && CLOSED.load(Ordering::Relaxed) & (1 << number) != 0
}

pub(super) fn was_pipe_ignored() -> bool {
    IGNORES_PIPE.load(Ordering::Relaxed)
}

pub(super) fn closed_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

pub(super) fn keep_closed() -> io::Result<()> {
    for number in (0..3).filter(|number| was_closed(*number)) {
        let unfit = if number == 0 { OFlags::WRONLY } else { OFlags::RDONLY };
        let null = rustix::fs::open("/dev/null", unfit | OFlags::CLOEXEC, Mode::empty())?;
        place(std::os::fd::AsRawFd::as_raw_fd(&null), number.into())?;
    }
    Ok(())
}

/// Makes `to` a copy of `from` that is closed on exec.
fn place(from: i32, to: i32) -> io::Result<()> {
    // SAFETY: numbers. std has opened the null device under `to`, and does not close it.
    if unsafe { libc::dup2(from, to) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: numbers.
    if unsafe { libc::fcntl(to, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
