//! Pseudo-terminals: a terminal for a child, with this process at the other side.

mod error;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::fmt;
use std::io;

pub use error::{OpenError, OpenProblem};

use crate::base::handle::Handle;
use crate::base::pipe::{PipeReader, PipeWriter};

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

/// True where the leader of a session does not end, killed or not, before the output of its terminal has been read, or the terminal has
/// hung up.
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
/// Windows 10 1809 and later: two pipes and `CreatePseudoConsole`, which is looked up at run time. Never run on Windows:
/// Wine, where the suites run, has only a stub of it.
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
/// [`reader`](Self::reader) and [`writer`](Self::writer) return handles to it: what the child writes, and what is typed.
/// By default the terminal echoes typed characters, passes input on in lines, and writes a line feed as CR LF. A child
/// may change that.
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
    /// Windows: before Windows 11 24H2 the system reports the end only after the console has been closed, as the verbs of
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
    /// Unix: closes that handle; the readers keep the side open. Windows: keeps the input of the console open until the drop,
    /// because a console whose input is closed ends, and its processes with it.
    #[must_use]
    pub fn hold(self, pty: Pty) -> ChildTerminal {
        ChildTerminal(imp::hold(self.0, pty.0))
    }

    /// Leaves the terminal to the child, which has been started: the reader finds the end without this process.
    ///
    /// # Platform
    /// Unix: closes the side in this process. Windows: `ReleasePseudoConsole` where the system has it (Windows 11 24H2);
    /// otherwise the value returned has to be dropped when the child has ended.
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
