//! Setters for the Windows extensions of std's `Command`, and related ones.

use std::ffi::OsStr;

use pipewright_os::process::start::WindowsOptions;

use super::Command;

/// Windows options. On other systems the verb fails with [`Unsupported`](crate::ErrorKind::Unsupported).
impl Command {
    /// Sets flags for `CreateProcessW`, such as 0x10 (`CREATE_NEW_CONSOLE`). The name is std's; a second call
    /// replaces the first.
    ///
    /// Flags that this crate needs (a Unicode environment, extended start-up information) are always added.
    ///
    /// # Errors
    /// The verb returns `InvalidInput` for `CREATE_SUSPENDED` (4): nothing could resume the child.
    pub fn creation_flags(&mut self, flags: u32) -> &mut Command {
        self.windows().creation_flags = flags;
        self
    }

    /// Sets how the program's first window is shown: 0 is hidden, 6 minimised (`SW_HIDE`, `SW_MINIMIZE`). The name
    /// is std's.
    pub fn show_window(&mut self, show: u16) -> &mut Command {
        self.windows().show_window = Some(show);
        self
    }

    /// Appends this text to the command line unchanged, after a space and without quotes, for programs that parse
    /// their command line by their own rules, such as `cmd.exe /c`. The name is std's.
    ///
    /// Never pass untrusted text: it controls the command line.
    ///
    /// ```no_run
    /// # use pipewright::Command;
    /// let output = Command::new("cmd").arg("/c").raw_arg(r#"echo "a  b""#).read()?;
    /// assert_eq!(output, r#""a  b""#);
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    pub fn raw_arg(&mut self, text: impl AsRef<OsStr>) -> &mut Command {
        let index = self.args.len();
        self.windows().raw_args.push(index);
        self.arg(text)
    }

    /// Quotes every argument, even if it needs no quotes. The name is std's.
    pub fn force_quotes(&mut self, enabled: bool) -> &mut Command {
        self.windows().force_quotes = enabled;
        self
    }

    /// Gives a console program a console without a window.
    ///
    /// This is the default if this process has no console and all three streams of the child are redirected,
    /// because the window would be empty. Such a console is not this process's, so no Ctrl-C and no stop signal
    /// reaches the child.
    ///
    /// # Platform
    /// Windows: `CREATE_NO_WINDOW`.
    pub fn no_window(&mut self) -> &mut Command {
        self.windows().no_window = true;
        self
    }

    /// Starts the child outside the job of this process (that of a terminal or a build server, for example), which
    /// might kill the child when this process ends.
    ///
    /// # Platform
    /// Windows: `CREATE_BREAKAWAY_FROM_JOB`.
    ///
    /// # Errors
    /// The start fails with [`PermissionDenied`](crate::ErrorKind::PermissionDenied) if the job does not allow
    /// breakaway. If this process is in no job, this setting has no effect.
    pub fn breakaway_from_job(&mut self) -> &mut Command {
        self.windows().breakaway_from_job = true;
        self
    }

    /// Lets processes leave a contained tree ([`Contain::Tree`](crate::Contain::Tree)) if they ask to. Some programs
    /// (browsers, installers) cannot start their helpers otherwise. Stops no longer reach a process that left.
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
