//! Pseudo-terminals: a terminal for a child, with this process at the other side.

#[cfg(windows)]
mod windows;

use std::error::Error;
use std::{fmt, io};

use crate::base::handle::Handle;
use crate::base::pipe::{PipeReader, PipeWriter};
#[cfg(windows)]
use windows as imp;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PtySize {
    /// The number of rows.
    pub rows: u16,
    /// The number of columns.
    pub cols: u16,
}

impl Default for PtySize {
    /// Returns the size of the classic terminal: 24 rows of 80 columns.
    fn default() -> PtySize {
        PtySize { rows: 24, cols: 80 }
    }
}

/// True where the output of a terminal ends a while after its programs: the console shows its last frame, and closes.
///
/// # Platform
/// Windows: true.
pub const ENDS_LATE: bool = cfg!(windows);

/// True where the leader of a session does not end, killed or not, before the output of its terminal has been read, or
/// the terminal has hung up.
///
/// # Platform
/// macOS: true.
pub const LEADER_WAITS: bool = cfg!(target_os = "macos");

/// Opens a pseudo-terminal of that size. Returns this process's side and the child's.
///
/// # Platform
/// Linux: `/dev/ptmx`, `TIOCSPTLCK`, `TIOCGPTPEER`, `TIOCSWINSZ`. The child's side is never looked up by its name: in
/// another mount namespace, `/dev/pts` may belong to other terminals. The open file of this process's side is in
/// non-blocking mode; nobody shares it.
///
/// macOS: `posix_openpt`, `grantpt`, `unlockpt`, `TIOCPTYGNAME` and `open`.
///
/// Windows 10 1809 and later: two pipes and `CreatePseudoConsole`, which is looked up at run time. Never run on
/// Windows: Wine, where the suites run, has only a stub of it.
///
/// # Errors
/// [`OpenError`] names the problem: no pseudo-terminals here, all in use, no more handles.
///
/// ```
/// # use pipewright_os::process::pty::{PtySize, open};
/// # if cfg!(unix) {
/// let (pty, _child_end) = open(PtySize { rows: 30, cols: 100 })?;
/// assert_eq!(pty.window_size()?, PtySize { rows: 30, cols: 100 });
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "openpty")]
#[doc(alias = "forkpty")]
#[doc(alias = "CreatePseudoConsole")]
pub fn open(size: PtySize) -> Result<(Pty, ChildTerminal), OpenError> {
    let (pty, child) = imp::open(size)?;
    Ok((Pty(pty), ChildTerminal(child)))
}

/// This process's side of the terminal of a child.
///
/// [`reader`](Self::reader) and [`writer`](Self::writer) return handles to it: what the child writes, and what is
/// typed. By default the terminal echoes typed characters, passes input on in lines, and writes a line feed as CR LF. A
/// child may change that.
///
/// # Drop
/// When the last handle of this side is closed, the terminal hangs up: the child's session gets SIGHUP, and its reads
/// return the end of the input. Windows: the processes on the console are sent `CTRL_CLOSE_EVENT`.
pub struct Pty(imp::Pty);

impl Pty {
    /// Returns a handle that reads what the child writes.
    ///
    /// A read returns the end of the stream when no process has the terminal open any more, and never before the last
    /// byte has been read. Handles share one stream: each byte goes to one of them.
    ///
    /// # Platform
    /// Linux: a read returns at most 4 KiB. `EIO` counts as the end once a second read has returned it as well: a child
    /// that writes and exits between two checks inside the kernel's read makes the first one too early.
    ///
    /// Windows: before Windows 11 24H2 the system reports the end only after the console has been closed, as the verbs
    /// of
    /// `pipewright` do when the child has ended.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn reader(&self) -> io::Result<PipeReader> {
        imp::reader(&self.0)
    }

    /// Returns a handle whose writes are typed at the terminal.
    ///
    /// A line can have 4095 bytes while the terminal passes input on in lines (termios(3)); more is dropped. On Linux a
    /// write succeeds even if no process has the terminal open any more.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn writer(&self) -> io::Result<PipeWriter> {
        imp::writer(&self.0)
    }

    /// Duplicates the handle of this side.
    ///
    /// # Errors
    /// No more handles are available.
    pub fn try_clone(&self) -> io::Result<Pty> {
        imp::try_clone(&self.0).map(Pty)
    }

    /// Puts the open file of this side back into the mode that never blocks, after a reader or a writer of it has been
    /// converted to a descriptor, which has to block.
    ///
    /// # Platform
    /// Unix: `O_NONBLOCK`. Windows: nothing.
    ///
    /// # Errors
    /// The error of the call.
    pub fn make_nonblocking(&self) -> io::Result<()> {
        imp::make_nonblocking(&self.0)
    }

    /// Changes the size, and informs the processes of the foreground job.
    ///
    /// # Platform
    /// Unix: `TIOCSWINSZ`, which sends SIGWINCH. Windows: `ResizePseudoConsole`.
    ///
    /// # Errors
    /// The error of the call.
    #[doc(alias = "TIOCSWINSZ")]
    #[doc(alias = "setwinsize")]
    pub fn resize(&self, size: PtySize) -> io::Result<()> {
        imp::resize(&self.0, size)
    }

    /// Returns the size, which a child may have changed (Unix).
    ///
    /// # Platform
    /// Unix: `TIOCGWINSZ`. Windows: the size that was set last.
    ///
    /// # Errors
    /// The error of the call.
    #[doc(alias = "TIOCGWINSZ")]
    pub fn window_size(&self) -> io::Result<PtySize> {
        imp::window_size(&self.0)
    }

    /// Makes the terminal echo typed characters, or stop that, until a child changes it again.
    ///
    /// # Platform
    /// Unix: `tcsetattr`. Windows: `Unsupported`; there the program at the console decides.
    ///
    /// # Errors
    /// The error of the call.
    pub fn set_echo(&self, enabled: bool) -> io::Result<()> {
        imp::set_echo(&self.0, enabled)
    }

    /// Returns true if the terminal echoes typed characters: a program that reads a password has turned that off.
    ///
    /// # Platform
    /// As for [`set_echo`](Self::set_echo).
    ///
    /// # Errors
    /// The error of the call.
    pub fn echoes(&self) -> io::Result<bool> {
        imp::echoes(&self.0)
    }

    /// Types the end of the input, as Ctrl-D does. A program that reads lines then finds the end, once: after an
    /// unfinished line it gets that line instead.
    ///
    /// # Platform
    /// Unix: the terminal's `VEOF` character. Windows: Ctrl-Z and Enter.
    ///
    /// # Errors
    /// `WouldBlock`: nobody reads the input, and its buffer is full.
    pub fn send_eof(&self) -> io::Result<()> {
        imp::send_eof(&self.0)
    }

    /// Types the end of the input before there is a program, and shows nothing of it.
    ///
    /// # Platform
    /// macOS: a terminal there shows `^D`, so its echo is off meanwhile. Elsewhere as [`send_eof`](Self::send_eof).
    ///
    /// # Errors
    /// As for [`send_eof`](Self::send_eof).
    pub fn send_eof_unseen(&self) -> io::Result<()> {
        imp::send_eof_unseen(&self.0)
    }

    /// Types the interrupt character, as Ctrl-C does. The foreground job gets SIGINT, unless its program reads keys
    /// itself.
    ///
    /// # Platform
    /// Unix: the terminal's `VINTR` character. Windows: Ctrl-C.
    ///
    /// # Errors
    /// As for [`send_eof`](Self::send_eof).
    pub fn send_interrupt(&self) -> io::Result<()> {
        imp::send_interrupt(&self.0)
    }
}

impl fmt::Debug for Pty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pty").field(&imp::number(&self.0)).finish()
    }
}

/// The child's side of a terminal, for [`Plan::terminal`](crate::process::start::Plan::terminal).
///
/// # Drop
/// Closes the side in this process. The reader finds the end of the stream once every other process has closed it as
/// well. Windows: closes the console, in the background.
pub struct ChildTerminal(pub(crate) imp::ChildTerminal);

impl ChildTerminal {
    /// Returns the handle of this side. Windows: `None`; a console has no handle before a process is on it.
    #[must_use]
    pub fn handle(&self) -> Option<&Handle> {
        imp::handle(&self.0)
    }

    /// Makes a user the owner of the terminal, whose programs open it by its path (`/dev/stderr`, `tty`).
    ///
    /// # Platform
    /// Unix: `fchown`. Windows: nothing; a console has no owner.
    ///
    /// # Errors
    /// The error of the call.
    pub fn give_to_user(&self, user: u32) -> io::Result<()> {
        imp::give_to_user(&self.0, user)
    }

    /// Takes this process's side, of which only readers are needed from now on.
    ///
    /// # Platform
    /// Unix: closes that handle; the readers keep the side open. Windows: keeps the input of the console open until the
    /// drop, because a console whose input is closed ends, and its processes with it.
    #[must_use]
    pub fn hold(self, pty: Pty) -> ChildTerminal {
        ChildTerminal(imp::hold(self.0, pty.0))
    }

    /// Leaves the terminal to the child, which has been started: the reader finds the end without this process.
    ///
    /// # Platform
    /// Unix: closes the side in this process. Windows: `ReleasePseudoConsole` where the system has it (Windows 11
    /// 24H2); otherwise the value returned has to be dropped when the child has ended.
    #[must_use]
    pub fn release(self) -> Option<ChildTerminal> {
        imp::release(self.0).map(ChildTerminal)
    }
}

impl fmt::Debug for ChildTerminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildTerminal").finish_non_exhaustive()
    }
}

/// The error of a terminal that could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// The problem.
    pub problem: OpenProblem,
    /// The system's error.
    pub source: io::Error,
}

/// The reason why no terminal could be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpenProblem {
    /// This machine, container or root directory has no pseudo-terminals: no `/dev/ptmx`, no mounted devpts, a Windows
    /// before 1809.
    Missing,
    /// All pseudo-terminals are in use: `/proc/sys/kernel/pty/max`, or the option `max` of a devpts.
    Exhausted,
    /// Another error of the system.
    Other,
}

impl OpenError {
    fn new(problem: OpenProblem, source: io::Error) -> OpenError {
        OpenError { problem, source }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.problem {
            OpenProblem::Missing => "this system has no pseudo-terminals",
            OpenProblem::Exhausted => "too many terminals",
            OpenProblem::Other => "cannot open a terminal",
        };
        write!(f, "{words}: {}", self.source)
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

// A pseudo-terminal as two open files.
#[cfg(unix)]
mod imp {
    use std::io;
    use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

    use rustix::fs::OFlags;
    use rustix::termios::{
        LocalModes, OptionalActions, SpecialCodeIndex, Winsize, tcgetattr, tcgetwinsize, tcsetattr,
        tcsetwinsize,
    };

    #[cfg(target_os = "linux")]
    use super::linux as system;
    #[cfg(target_os = "macos")]
    use super::macos as system;
    use super::{OpenError, OpenProblem, PtySize};
    use crate::base::handle::Handle;
    use crate::base::pipe::{NonblockMethod, PipeReader, PipeWriter};

    pub(super) type Pty = OwnedFd;
    pub(crate) type ChildTerminal = Handle;

    /// The characters of a terminal whose program has switched them off.
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;

    pub(super) fn open(size: PtySize) -> Result<(Pty, ChildTerminal), OpenError> {
        let (ours, theirs) = system::open()?;
        let other = |error| OpenError::new(OpenProblem::Other, error);
        system::set_nonblocking(ours.as_fd()).map_err(other)?;
        resize(&ours, size).map_err(other)?;
        Ok((ours, Handle::from(theirs)))
    }

    pub(super) fn try_clone(pty: &Pty) -> io::Result<Pty> {
        pty.try_clone()
    }

    pub(super) fn reader(pty: &Pty) -> io::Result<PipeReader> {
        Ok(PipeReader::with_method(pty.try_clone()?, NonblockMethod::Terminal))
    }

    pub(super) fn writer(pty: &Pty) -> io::Result<PipeWriter> {
        Ok(PipeWriter::with_method(pty.try_clone()?, NonblockMethod::Terminal))
    }

    pub(super) fn make_nonblocking(pty: &Pty) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(pty)?;
        Ok(rustix::fs::fcntl_setfl(pty, flags | OFlags::NONBLOCK)?)
    }

    pub(super) fn resize(pty: &Pty, size: PtySize) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(pty, size)?)
    }

    pub(super) fn window_size(pty: &Pty) -> io::Result<PtySize> {
        let size = tcgetwinsize(pty)?;
        Ok(PtySize { rows: size.ws_row, cols: size.ws_col })
    }

    pub(super) fn set_echo(pty: &Pty, enabled: bool) -> io::Result<()> {
        let mut settings = tcgetattr(pty)?;
        settings.local_modes.set(LocalModes::ECHO, enabled);
        Ok(tcsetattr(pty, OptionalActions::Now, &settings)?)
    }

    pub(super) fn echoes(pty: &Pty) -> io::Result<bool> {
        Ok(tcgetattr(pty)?.local_modes.contains(LocalModes::ECHO))
    }

    pub(super) fn send_eof(pty: &Pty) -> io::Result<()> {
        send_special(pty, SpecialCodeIndex::VEOF, CTRL_D)
    }

    /// Only the terminals of the BSDs show the character.
    pub(super) fn send_eof_unseen(pty: &Pty) -> io::Result<()> {
        if cfg!(target_os = "linux") { send_eof(pty) } else { without_echo(pty, send_eof) }
    }

    /// Sends without an echo, for a terminal that echoes in the call that writes.
    fn without_echo(pty: &Pty, send: fn(&Pty) -> io::Result<()>) -> io::Result<()> {
        let echoed = echoes(pty)?;
        set_echo(pty, false)?;
        let sent = send(pty);
        set_echo(pty, echoed)?;
        sent
    }

    pub(super) fn send_interrupt(pty: &Pty) -> io::Result<()> {
        send_special(pty, SpecialCodeIndex::VINTR, CTRL_C)
    }

    /// Types a character that has a meaning for the terminal.
    fn send_special(pty: &Pty, index: SpecialCodeIndex, usual: u8) -> io::Result<()> {
        // 0 is a character that is switched off (_POSIX_VDISABLE).
        let code = match tcgetattr(pty)?.special_codes[index] {
            0 => usual,
            code => code,
        };
        match PipeWriter::with_method(pty.try_clone()?, NonblockMethod::Terminal)
            .try_write(&[code])?
        {
            0 => Err(io::ErrorKind::WriteZero.into()),
            _ => Ok(()),
        }
    }

    pub(super) fn number(pty: &Pty) -> RawFd {
        pty.as_raw_fd()
    }

    pub(super) fn give_to_user(terminal: &ChildTerminal, user: u32) -> io::Result<()> {
        Ok(rustix::fs::fchown(terminal, Some(rustix::fs::Uid::from_raw(user)), None)?)
    }

    pub(super) fn handle(terminal: &ChildTerminal) -> Option<&Handle> {
        Some(terminal)
    }

    pub(super) fn hold(terminal: ChildTerminal, pty: Pty) -> ChildTerminal {
        drop(pty);
        terminal
    }

    pub(super) fn release(terminal: ChildTerminal) -> Option<ChildTerminal> {
        drop(terminal);
        None
    }

    #[cfg(all(test, target_os = "macos"))]
    mod tests {
        use super::*;

        /// Not on Linux, where the terminal echoes some time after the write, with the modes of that moment.
        #[test]
        fn what_is_sent_without_echo_is_not_shown_and_the_echo_is_back_afterwards() {
            let (pty, theirs) = open(PtySize::default()).unwrap();
            let send = |pty: &Pty| writer(pty)?.try_write(b"typed").map(drop);
            without_echo(&pty, send).unwrap();
            send_eof_unseen(&pty).unwrap();
            assert!(echoes(&pty).unwrap());
            // The first bytes that the terminal shows, the echo of ours among them, if there was one.
            rustix::io::write(&theirs, b"shown").unwrap();
            let mut shown = Vec::with_capacity(64);
            reader(&pty).unwrap().read_spare(&mut shown).unwrap();
            assert_eq!(shown, b"shown");
        }
    }
}

// Opens a pseudo-terminal by ioctls of its own side.
#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;

    use super::{OpenError, OpenProblem};

    /// Opens the two sides.
    pub(super) fn open() -> Result<(OwnedFd, OwnedFd), OpenError> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let ours = rustix::fs::open("/dev/ptmx", flags, Mode::empty()).map_err(open_error)?;
        let unlocked: libc::c_int = 0;
        // SAFETY: the call reads the number.
        let result =
            unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
        if result < 0 {
            return Err(ioctl_error());
        }
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: takes numbers.
        let theirs = unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTPEER, flags) };
        if theirs < 0 {
            return Err(ioctl_error());
        }
        // SAFETY: made by the call above, and owned nowhere else.
        Ok((ours, unsafe { OwnedFd::from_raw_fd(theirs) }))
    }

    /// Makes sure that the side of this process never blocks.
    pub(super) fn set_nonblocking(_: BorrowedFd<'_>) -> io::Result<()> {
        // It was opened in that mode.
        Ok(())
    }

    fn open_error(error: Errno) -> OpenError {
        let problem = match error {
            Errno::NOENT | Errno::NODEV | Errno::NXIO | Errno::NOTDIR => OpenProblem::Missing,
            // From the limit of all terminals or of this devpts.
            Errno::NOSPC => OpenProblem::Exhausted,
            _ => OpenProblem::Other,
        };
        OpenError::new(problem, error.into())
    }

    /// Returns the error of an ioctl. Something else is called `/dev/ptmx`, an emulator lacks the call, or something
    /// else is mounted on `/dev/pts` (`ENODEV`).
    fn ioctl_error() -> OpenError {
        let error = io::Error::last_os_error();
        let is_missing = matches!(
            error.raw_os_error(),
            Some(libc::ENOTTY | libc::EINVAL | libc::ENOSYS | libc::ENODEV)
        );
        OpenError::new(if is_missing { OpenProblem::Missing } else { OpenProblem::Other }, error)
    }
}

// Opens a pseudo-terminal by the name of its other side. Never run.
#[cfg(target_os = "macos")]
mod macos {
    use std::ffi::{CStr, c_char};
    use std::io;
    use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

    use rustix::fs::{Mode, OFlags};
    use rustix::io::FdFlags;

    use super::{OpenError, OpenProblem};

    /// The size of the name that `TIOCPTYGNAME` writes (sys/ttycom.h).
    const NAME_BYTES: usize = 128;

    /// Opens the two sides.
    pub(super) fn open() -> Result<(OwnedFd, OwnedFd), OpenError> {
        // SAFETY: takes a number.
        let ours = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY) };
        if ours < 0 {
            return Err(open_error(io::Error::last_os_error()));
        }
        // SAFETY: made by the call above, and owned nowhere else.
        let ours = unsafe { OwnedFd::from_raw_fd(ours) };
        // There is no flag for it: a child that other code forks in between could inherit it.
        rustix::io::fcntl_setfd(&ours, FdFlags::CLOEXEC)
            .map_err(|error| open_error(error.into()))?;
        // SAFETY: an open file.
        if unsafe { libc::grantpt(ours.as_raw_fd()) } < 0 {
            return Err(open_error(io::Error::last_os_error()));
        }
        // SAFETY: as above.
        if unsafe { libc::unlockpt(ours.as_raw_fd()) } < 0 {
            return Err(open_error(io::Error::last_os_error()));
        }
        let mut name: [c_char; NAME_BYTES] = [0; NAME_BYTES];
        // `ptsname` returns a buffer that threads share.
        // SAFETY: the call writes a name of at most that many bytes, ended by NUL.
        let result = unsafe {
            libc::ioctl(ours.as_raw_fd(), libc::TIOCPTYGNAME as libc::c_ulong, name.as_mut_ptr())
        };
        if result < 0 {
            return Err(open_error(io::Error::last_os_error()));
        }
        // SAFETY: written by the call above.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = rustix::fs::open(name, flags, Mode::empty());
        Ok((ours, theirs.map_err(|error| open_error(error.into()))?))
    }

    /// Makes sure that the side of this process never blocks.
    pub(super) fn set_nonblocking(ours: BorrowedFd<'_>) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(ours)?;
        Ok(rustix::fs::fcntl_setfl(ours, flags | OFlags::NONBLOCK)?)
    }

    fn open_error(error: io::Error) -> OpenError {
        let problem = match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => OpenProblem::Missing,
            Some(libc::EAGAIN | libc::ENOSPC) => OpenProblem::Exhausted,
            _ => OpenProblem::Other,
        };
        OpenError::new(problem, error)
    }
}
