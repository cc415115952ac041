//! This process's terminal in raw mode.

use std::io;

use pipewright_os::process::terminal::{self, RawMode};

use crate::child::Child;
use crate::command::{Command, Stdio};

/// The terminal that is this process's stdin, in raw mode (feature `session`): each key is read at once, none is echoed, and
/// none is a signal. [`Session::interact`](crate::Session::interact) uses it.
///
/// # Platform
/// Unix: `tcsetattr`. Windows: `SetConsoleMode`; never run there.
///
/// # Drop
/// Restores the earlier modes, unless this process is in the background, and a shell has set its own. If this process is killed, a helper process restores them: `/bin/sh`, which waits for the end
/// of a pipe and runs `stty` (Unix). If one of these programs is missing, SIGKILL leaves raw mode behind.
#[derive(Debug)]
pub struct RawTerminal {
    mode: Option<RawMode>,
    guard: Option<Child>,
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // The guard stays until the modes are restored.
        drop(self.mode.take());
        // Killed before the pipe to it is closed, which would make it restore the modes: somebody else may have set some by then.
        if let Some(guard) = &self.guard {
            // Ignored: it has ended.
            let _ = guard.kill();
        }
    }
}

impl RawTerminal {
    /// Sets the raw mode. Returns `None` if stdin is not a terminal. In the background this process is stopped first (SIGTTOU),
    /// until a shell puts it in the foreground.
    ///
    /// # Errors
    /// The error of the call.
    ///
    /// ```no_run
    /// use std::io::Read as _;
    /// let raw = pipewright::RawTerminal::of_stdin()?;
    /// let mut key = [0];
    /// std::io::stdin().read_exact(&mut key)?;
    /// drop(raw);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[doc(alias = "cfmakeraw")]
    pub fn of_stdin() -> io::Result<Option<RawTerminal>> {
        // Before the modes are read: in the background they are those of a shell that edits its line.
        terminal::wait_for_foreground();
        let guard = start_guard();
        let mode = RawMode::of_stdin()?;
        Ok(mode.map(|mode| RawTerminal { mode: Some(mode), guard }))
    }

    /// Sets the raw mode again after this process was stopped and continued (SIGCONT). The modes that a shell has set meanwhile
    /// are those that the drop restores.
    ///
    /// # Errors
    /// The error of the call.
    pub fn renew(&mut self) -> io::Result<()> {
        terminal::wait_for_foreground();
        // A shell that edits no lines leaves the modes as they are.
        if self.mode.as_ref().is_some_and(RawMode::is_set) {
            return Ok(());
        }
        if let Some(renewed) = RawTerminal::of_stdin()? {
            if let Some(mode) = self.mode.take() {
                mode.forget();
            }
            *self = renewed;
        }
        Ok(())
    }
}

/// Starts the process that restores the terminal's modes if this one is killed. `None`: stdin is not a terminal, or the
/// programs are missing.
fn start_guard() -> Option<Child> {
    let script = terminal::RESTORE_SCRIPT?;
    let modes = Command::new("stty").arg("-g").stdin(Stdio::inherit()).read().ok()?;
    let mut guard = Command::new("/bin/sh");
    guard.args(["-c", script, &modes]).own_group().kill_on_drop();
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}
