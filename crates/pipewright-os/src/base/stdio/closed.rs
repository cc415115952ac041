//! Standard streams that were closed when this process started.
//!
//! std opens the null device for each of them before `main`, and reports a read or a write of a closed stream as a
//! success. So a program cannot find out later, and its children would write to the null device: output is lost, and
//! every exit code is 0.

use std::io::{self, Read, Write};

/// Returns true if that standard stream (0 to 2) was closed when this process started.
///
/// # Platform
/// Unix, with the feature `closed-stdio`: `fcntl(F_GETFD)`, before std opens the null device. Elsewhere false.
#[must_use]
pub fn was_closed(number: u8) -> bool {
    imp::was_closed(number)
}

/// Returns true if SIGPIPE was ignored when this process started. std ignores it before `main` in any case.
///
/// # Platform
/// Unix, with the feature `closed-stdio`: `sigaction`, before std sets it. Elsewhere false.
#[must_use]
pub fn was_pipe_ignored() -> bool {
    imp::was_pipe_ignored()
}

/// Makes the streams that were closed at the start fail again, in this process and in the children that inherit them.
/// Call it at the start of `main`, before any thread starts.
///
/// # Platform
/// Unix: the null device takes their numbers, opened so that reads or writes fail with `EBADF`, and closed on exec. So
/// no file that is opened later gets one of the numbers.
///
/// # Errors
/// The null device cannot be opened.
pub fn keep_closed() -> io::Result<()> {
    imp::keep_closed()
}

/// Returns the error of a closed stream if that standard stream (0 to 2) was closed when this process started.
///
/// # Errors
/// Unix: `EBADF`.
pub fn fail_if_closed(number: u8) -> io::Result<()> {
    if was_closed(number) { Err(imp::closed_error()) } else { Ok(()) }
}

/// Returns this process's stdout as a writer that fails if it was closed at the start. That of std succeeds.
#[must_use]
pub fn stdout() -> OwnStdout {
    OwnStdout(io::stdout())
}

/// Returns this process's stdin as a reader that fails if it was closed at the start. That of std finds the end of the
/// input.
#[must_use]
pub fn stdin() -> OwnStdin {
    OwnStdin(io::stdin())
}

/// The stdout of this process: see [`stdout`].
#[derive(Debug)]
pub struct OwnStdout(io::Stdout);

/// The stdin of this process: see [`stdin`].
#[derive(Debug)]
pub struct OwnStdin(io::Stdin);

impl Write for OwnStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        fail_if_closed(1)?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Read for OwnStdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        fail_if_closed(0)?;
        self.0.read(buffer)
    }
}

/// Finds closed descriptors and an ignored SIGPIPE by a function that runs before std's own start.
#[cfg(all(unix, feature = "closed-stdio"))]
mod imp {
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
}

/// Nothing records closed streams here: none is known to be closed.
#[cfg(not(all(unix, feature = "closed-stdio")))]
mod imp {
    use std::io;

    pub(super) fn was_closed(_: u8) -> bool {
        false
    }

    pub(super) fn was_pipe_ignored() -> bool {
        false
    }

    pub(super) fn closed_error() -> io::Error {
        io::ErrorKind::BrokenPipe.into()
    }

    pub(super) fn keep_closed() -> io::Result<()> {
        Ok(())
    }
}
