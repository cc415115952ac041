//! The controlling terminal of this process: its foreground job, its size, its modes.

mod changes;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;

use crate::base::handle::Handle;
use crate::process::pty::PtySize;
pub use changes::{StopRequests, TerminalChanges};

/// Returns true if this process has a controlling terminal: a background process of its session that reads it is suspended
/// (SIGTTIN).
///
/// # Platform
/// Unix: true unless opening `/dev/tty` fails with `ENXIO`. Windows: false; it has no job control.
#[must_use]
pub fn is_controlling() -> bool {
    imp::is_controlling()
}

/// The terminal of a process, whose job may be in the foreground.
#[derive(Debug)]
pub struct Foreground {
    pub(crate) terminal: Handle,
}

impl Foreground {
    /// Returns the controlling terminal of this process; `None` if there is none, or if another job is in
    /// the foreground.
    ///
    /// # Platform
    /// Unix: `/dev/tty`, `tcgetpgrp`. Windows: `None`; it has no job control.
    #[must_use]
    pub fn own() -> Option<Foreground> {
        let foreground = Foreground { terminal: imp::terminal()? };
        foreground.is_ours().then_some(foreground)
    }

    /// Returns the controlling terminal of this process, whichever job is in the foreground; `None` if there is none.
    ///
    /// # Platform
    /// Unix: `/dev/tty`. Windows: `None`.
    #[must_use]
    pub fn controlling() -> Option<Foreground> {
        imp::terminal().map(|terminal| Foreground { terminal })
    }

    /// Returns true if the group of this process is in the foreground.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        imp::foreground_group(&self.terminal) == Some(imp::own_group())
    }

    /// Puts a group of this session in the foreground. Nothing happens if the group has ended. (On Linux a
    /// child that starts in the foreground does this itself; on macOS it is done before the child runs.)
    ///
    /// # Platform
    /// Unix: `tcsetpgrp`, with SIGTTOU blocked, which would stop a background job.
    pub fn give_to(&self, group: u32) {
        imp::set_foreground_group(&self.terminal, group);
    }

    /// Puts the group of this process back in the foreground.
    pub fn take_back(&self) {
        if !self.is_ours() {
            self.give_to(imp::own_group());
        }
    }

    /// Returns the terminal, for a child that can put itself in the foreground.
    #[cfg(target_os = "linux")]
    pub(crate) fn terminal(&self) -> &Handle {
        &self.terminal
    }
}

/// The raw mode of the terminal that is stdin: each key is read at once, none is echoed, and none is a signal.
///
/// # Drop
/// Restores the earlier modes, unless this process is in the background and others were set meanwhile: they are the shell's.
#[derive(Debug)]
pub struct RawMode {
    before: imp::RawMode,
}

impl RawMode {
    /// Sets the raw mode. Returns `None` if stdin is not a terminal.
    ///
    /// # Platform
    /// Unix: `tcsetattr`, after what was written to the terminal. Windows: `SetConsoleMode` of stdin and stdout, with
    /// virtual terminal sequences.
    ///
    /// # Errors
    /// The error of the call.
    #[doc(alias = "cfmakeraw")]
    pub fn of_stdin() -> io::Result<Option<RawMode>> {
        Ok(imp::RawMode::of_stdin()?.map(|before| RawMode { before }))
    }

    /// Returns true if stdin still has that mode. A shell may have set another one while this process was stopped.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.before.is_set()
    }

    /// Forgets the earlier modes: others were set since, which another value restores.
    pub fn forget(self) {
        // It owns nothing but numbers.
        std::mem::forget(self);
    }
}

/// Returns when this process is in the foreground of the terminal that is its stdin: in the background it is stopped until then, as
/// every program is that sets a terminal's modes. Returns at once if stdin is no terminal, or if nothing could continue it.
///
/// # Platform
/// Unix: `tcdrain`, whose SIGTTOU stops this process's group. Windows: nothing; it has no job control.
pub fn wait_for_foreground() {
    imp::wait_for_foreground();
}

/// The modes of this process's stdout for the output of another terminal: its sequences are obeyed, and its text is UTF-8.
///
/// # Drop
/// Restores the earlier modes.
#[derive(Debug)]
pub struct OutputMode {
    #[expect(dead_code, reason = "its drop restores the modes")]
    before: imp::OutputMode,
}

impl OutputMode {
    /// Sets the modes, if stdout is a console.
    ///
    /// # Platform
    /// Windows: `SetConsoleMode` with virtual terminal sequences, and `SetConsoleOutputCP`. The output of a pseudo-console is both,
    /// and a console in another mode shows it as it is. Unix: nothing; every terminal does so.
    #[must_use]
    #[doc(alias = "SetConsoleOutputCP")]
    pub fn of_stdout() -> OutputMode {
        OutputMode { before: imp::OutputMode::of_stdout() }
    }
}

/// A shell script that restores the terminal's modes, in the form of `stty -g` as `$0`, when its stdin ends. `None` on
/// Windows, where the modes end with the console's programs.
pub const RESTORE_SCRIPT: Option<&str> = imp::RESTORE_SCRIPT;

/// Returns true if other processes of this process's group may use the terminal: this one is a member of a pipeline (stdout is
/// no terminal), or a background job of a script (stdin is the null device).
///
/// # Platform
/// Unix: `isatty`, `fstat`. Windows: false; it has no job control.
#[must_use]
pub fn is_shared() -> bool {
    imp::is_shared()
}

/// Returns the size of the terminal that is stdin, or stdout. `None` if neither is a terminal, or the size is unknown.
///
/// # Platform
/// As for [`columns`].
#[must_use]
pub fn size() -> Option<PtySize> {
    imp::size().filter(|size| size.rows > 0 && size.cols > 0)
}

/// Returns the number of columns of the terminal that is stdout. `None` if stdout is not a terminal, or if
/// its size is unknown.
///
/// # Platform
/// Unix: `tcgetwinsize`. Windows: `GetConsoleScreenBufferInfo`; the width of the window counts.
#[must_use]
#[doc(alias = "tcgetwinsize")]
pub fn columns() -> Option<usize> {
    imp::columns(&std::io::stdout()).filter(|columns| *columns > 0)
}

/// Returns the number of columns of the terminal that is stderr, which may be another one, or the only one.
///
/// # Platform
/// As for [`columns`].
#[must_use]
pub fn stderr_columns() -> Option<usize> {
    imp::columns(&std::io::stderr()).filter(|columns| *columns > 0)
}

/// Stops this process, as Ctrl-Z does, and returns when it is continued. Returns at once if no process
/// could continue it (its group is orphaned, see setpgid(2)).
///
/// # Platform
/// Unix: SIGTSTP to this thread, even if another one [catches](crate::base::caught_signals::CaughtSignals)
/// it. Windows: nothing, because no process could continue it.
pub fn stop_this_process() {
    imp::stop_this_process();
}
