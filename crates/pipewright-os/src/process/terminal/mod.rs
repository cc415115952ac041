//! The terminal that controls this process, and which job has it.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use crate::base::handle::Handle;

/// The terminal, held by a process whose job had it in the foreground.
#[derive(Debug)]
pub struct Foreground {
    terminal: Handle,
}

impl Foreground {
    /// The terminal that controls this process; `None` where there is none, or where another job
    /// has it.
    ///
    /// # Platform
    /// Unix: `/dev/tty`, `tcgetpgrp`. Windows: `None`; it has no job control.
    #[must_use]
    pub fn own() -> Option<Foreground> {
        let foreground = Foreground { terminal: imp::terminal()? };
        foreground.is_ours().then_some(foreground)
    }

    /// Whether the group of this process has it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        imp::group_in_front(&self.terminal) == Some(imp::own_group())
    }

    /// Gives it to a group of this session. Who is gone takes nothing. (A child that starts in front
    /// takes it itself on Linux; on macOS it is given it before it runs.)
    ///
    /// # Platform
    /// Unix: `tcsetpgrp`, with SIGTTOU blocked: it would stop a job that is in the background.
    pub fn give_to(&self, group: u32) {
        imp::put_in_front(&self.terminal, group);
    }

    /// Gives it back to the group of this process.
    pub fn take_back(&self) {
        if !self.is_ours() {
            self.give_to(imp::own_group());
        }
    }

    /// What a child takes it through, where it can do so itself.
    #[cfg(target_os = "linux")]
    pub(crate) fn terminal(&self) -> &Handle {
        &self.terminal
    }
}

/// How many columns the terminal has that is our stdout. `None`: it is none, or has no size.
///
/// # Platform
/// Unix: `tcgetwinsize`. Windows: `GetConsoleScreenBufferInfo`, of which the window counts.
#[must_use]
#[doc(alias = "tcgetwinsize")]
pub fn columns() -> Option<usize> {
    imp::columns(&std::io::stdout()).filter(|columns| *columns > 0)
}

/// The same of the terminal that is our stderr, which may be another one, or the only one.
///
/// # Platform
/// As for [`columns`].
#[must_use]
pub fn stderr_columns() -> Option<usize> {
    imp::columns(&std::io::stderr()).filter(|columns| *columns > 0)
}

/// Stops this process, as Ctrl-Z does, and returns when it is continued: at once where nobody
/// could continue it (its group is orphaned, see setpgid(2)).
///
/// # Platform
/// Unix: SIGTSTP, to this thread, also where another one [catches](crate::base::caught_signals::CaughtSignals) it. Windows: nothing, as nobody could continue it.
pub fn stop_this_process() {
    imp::stop_this_process();
}
