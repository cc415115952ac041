//! Setters for the Windows extensions of std's `Command`, and what goes with them.

use std::ffi::OsStr;

use pipewright_os::process::spawn::WindowsOptions;

use super::Command;

/// What only Windows has; elsewhere the run is refused as unsupported.
impl Command {
    /// Adds these flags to those of `CreateProcessW`: 0x10 is `CREATE_NEW_CONSOLE`, say. The name is
    /// std's; a second call replaces the first.
    ///
    /// Flags that this crate sets itself (a Unicode environment, extended start-up information) are
    /// set whatever this says.
    ///
    /// # Errors
    /// The verb returns `InvalidInput` for `CREATE_SUSPENDED` (4): nothing could resume the child.
    pub fn creation_flags(&mut self, flags: u32) -> &mut Command {
        self.windows().creation_flags = flags;
        self
    }

    /// How the first window of the program is shown: 0 is hidden, 6 minimised (`SW_HIDE`,
    /// `SW_MINIMIZE`). The name is std's.
    pub fn show_window(&mut self, show: u16) -> &mut Command {
        self.windows().show_window = Some(show);
        self
    }

    /// Puts this text on the command line as it is, after a space and without any quotes: for
    /// programs that take their command line apart by rules of their own, such as `cmd.exe /c`.
    /// The name is std's.
    ///
    /// Whatever comes from outside has no place here: who writes it writes the command line.
    ///
    /// ```no_run
    /// # use pipewright::Command;
    /// let said = Command::new("cmd").arg("/c").raw_arg(r#"echo "a  b""#).read()?;
    /// assert_eq!(said, r#""a  b""#);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn raw_arg(&mut self, text: impl AsRef<OsStr>) -> &mut Command {
        let index = self.args.len();
        self.windows().raw_args.push(index);
        self.arg(text)
    }

    /// Puts quotes around every argument, whether it needs them or not. The name is std's.
    pub fn force_quotes(&mut self, enabled: bool) -> &mut Command {
        self.windows().force_quotes = enabled;
        self
    }

    /// Gives a console program a console without a window.
    ///
    /// It is done without being asked where this process has no console and all three streams of the
    /// child are redirected: the window would be empty. A console without a window is another one
    /// than ours: no Ctrl-C and no stop signal reaches the child.
    ///
    /// # Platform
    /// Windows: `CREATE_NO_WINDOW`.
    pub fn no_window(&mut self) -> &mut Command {
        self.windows().no_window = true;
        self
    }

    /// Starts the child outside of the job that this process is in, and that would perhaps end it
    /// with us: a terminal's, a build server's.
    ///
    /// # Platform
    /// Windows: `CREATE_BREAKAWAY_FROM_JOB`.
    ///
    /// # Errors
    /// [`PermissionDenied`](crate::ErrorKind::PermissionDenied) at the start: that job does not let
    /// anybody out. Without such a job nothing is done, and nothing is an error.
    pub fn breakaway_from_job(&mut self) -> &mut Command {
        self.windows().breakaway_from_job = true;
        self
    }

    /// Lets processes of a tree that is held ([`Contain::Tree`](crate::Contain::Tree)) leave it, if
    /// they ask: some programs (browsers, installers) cannot start their helpers otherwise. Who has
    /// left is out of reach.
    ///
    /// # Platform
    /// Windows: `JOB_OBJECT_LIMIT_BREAKAWAY_OK`.
    pub fn allow_breakaway(&mut self) -> &mut Command {
        self.windows().allow_breakaway = true;
        self
    }

    fn windows(&mut self) -> &mut WindowsOptions {
        self.windows.get_or_insert_default()
    }
}
