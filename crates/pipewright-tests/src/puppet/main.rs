//! The program of all test children: it performs the acts in its arguments, one after the other.
//!
//! ```text
//! puppet out=hello err-bytes=100000 wait=0.5 exit=3
//! ```
//!
//! Commas separate the parts of an act. `spawn=` takes the acts of a grandchild, separated by
//! semicolons, and does not wait for it.

mod acts;
#[cfg(target_os = "linux")]
mod peer;
#[cfg(unix)]
mod play;
mod worker;

fn main() {
    system::begin();
    // Acts are text; the program's own name need not be.
    for act in std::env::args_os().skip(1) {
        let act = act.to_string_lossy();
        let (name, value) = act.split_once('=').unwrap_or((&act, ""));
        if let Err(error) = acts::perform(name, value) {
            eprintln!("puppet: {act}: {error}");
            std::process::exit(99);
        }
    }
}

/// The acts of a puppet that only Unix has.
#[cfg(unix)]
mod system {
    use std::fs;
    use std::io::{self, Write as _};
    use std::os::fd::AsFd as _;

    use rustix::fs::OFlags;

    /// Prepares the process before the first act.
    pub(crate) fn begin() {}

    /// Performs one act.
    pub(crate) fn perform(name: &str, value: &str) -> io::Result<()> {
        match name {
            "play" => crate::play::play(value),
            "raise" => raise(value),
            "ignore" => ignore(value),
            "session" => rustix::process::setsid().map(drop).map_err(io::Error::from),
            "own-terminal" => own_terminal(),
            "modes" => modes(),
            "set-nonblocking" => set_nonblocking(),
            "status" => status_line(value),
            // Linux only, as the one above: no file shows them elsewhere.
            "limits" => {
                io::copy(&mut fs::File::open("/proc/self/limits")?, &mut io::stdout()).map(drop)
            }
            other => Err(io::Error::other(format!("unknown act: {other}"))),
        }
    }

    /// Returns stdin without the buffer of std.
    pub(crate) fn unbuffered_stdin() -> io::Result<fs::File> {
        io::stdin().as_fd().try_clone_to_owned().map(fs::File::from)
    }

    fn signal_number(name: &str) -> io::Result<i32> {
        let signal: pipewright_os::base::signal::Signal = name.parse().map_err(io::Error::other)?;
        Ok(signal.number())
    }

    fn raise(name: &str) -> io::Result<()> {
        let number = signal_number(name)?;
        // SAFETY: sets the default action, which replaces Rust's own handlers.
        unsafe { libc::signal(number, libc::SIG_DFL) };
        // SAFETY: takes a number.
        match unsafe { libc::raise(number) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn ignore(name: &str) -> io::Result<()> {
        // SAFETY: SIG_IGN runs no code of this program.
        match unsafe { libc::signal(signal_number(name)?, libc::SIG_IGN) } {
            libc::SIG_ERR => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Makes stdin, a terminal, the controlling terminal of this session.
    fn own_terminal() -> io::Result<()> {
        // SAFETY: takes numbers; 0 does not take the terminal from another session.
        match unsafe { libc::ioctl(0, libc::TIOCSCTTY as _, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Prints whether each standard handle blocks, a line each.
    fn modes() -> io::Result<()> {
        let mut text = String::new();
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        for flags in [
            rustix::fs::fcntl_getfl(&stdin)?,
            rustix::fs::fcntl_getfl(&stdout)?,
            rustix::fs::fcntl_getfl(&stderr)?,
        ] {
            text += if flags.contains(OFlags::NONBLOCK) { "nonblocking\n" } else { "blocking\n" };
        }
        io::stdout().write_all(text.as_bytes())
    }

    fn set_nonblocking() -> io::Result<()> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        rustix::fs::fcntl_setfl(&stdin, rustix::fs::fcntl_getfl(&stdin)? | OFlags::NONBLOCK)?;
        rustix::fs::fcntl_setfl(&stdout, rustix::fs::fcntl_getfl(&stdout)? | OFlags::NONBLOCK)?;
        rustix::fs::fcntl_setfl(&stderr, rustix::fs::fcntl_getfl(&stderr)? | OFlags::NONBLOCK)?;
        Ok(())
    }

    /// Prints a line of `/proc/self/status`.
    fn status_line(field: &str) -> io::Result<()> {
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find(|line| line.starts_with(field)).unwrap_or("");
        io::stdout().write_all(line.as_bytes())
    }
}

/// The acts of a puppet that only Windows has, or that work differently there.
#[cfg(windows)]
mod system {
    use std::fs;
    use std::io::{self, Write as _};
    use std::os::windows::io::{AsHandle as _, AsRawHandle as _};

    use pipewright_os::base::caught_signals::CaughtSignals;
    use pipewright_os::base::signal::Signal;
    use windows_sys::Wdk::Storage::FileSystem::{
        FILE_SYNCHRONOUS_IO_NONALERT, FileModeInformation, NtQueryInformationFile,
    };
    use windows_sys::Win32::System::IO::IO_STATUS_BLOCK;

    /// Prepares the process before the first act.
    pub(crate) fn begin() {
        pipewright_tests::alive::hold_marks();
    }

    /// Performs one act.
    pub(crate) fn perform(name: &str, value: &str) -> io::Result<()> {
        match name {
            "ignore" => ignore(value),
            // There are no sessions: an orphan belongs to no process, and has escaped.
            "session" => Ok(()),
            "modes" => modes(),
            other => Err(io::Error::other(format!("unknown act: {other}"))),
        }
    }

    /// Returns stdin without the buffer of std.
    pub(crate) fn unbuffered_stdin() -> io::Result<fs::File> {
        io::stdin().as_handle().try_clone_to_owned().map(fs::File::from)
    }

    /// Ignores Ctrl-C and Ctrl-Break from here on.
    fn ignore(name: &str) -> io::Result<()> {
        let signal: Signal = name.parse().map_err(io::Error::other)?;
        CaughtSignals::new(&[signal, Signal::INT, Signal::QUIT]).map(std::mem::forget)
    }

    /// Prints whether each standard handle blocks, a line each.
    fn modes() -> io::Result<()> {
        let handles = [
            io::stdin().as_raw_handle(),
            io::stdout().as_raw_handle(),
            io::stderr().as_raw_handle(),
        ];
        let mut text = String::new();
        for handle in handles {
            let (mut block, mut mode) = (IO_STATUS_BLOCK::default(), 0_u32);
            let (to, size) = ((&raw mut mode).cast(), 4);
            // SAFETY: the handle stays open as long as std uses it, the block is live, and this class
            // writes one number.
            let status = unsafe {
                NtQueryInformationFile(handle, &raw mut block, to, size, FileModeInformation)
            };
            let blocks = status >= 0 && mode & FILE_SYNCHRONOUS_IO_NONALERT != 0;
            text += if blocks { "blocking\n" } else { "overlapped\n" };
        }
        io::stdout().write_all(text.as_bytes())?;
        io::stdout().flush()
    }
}
