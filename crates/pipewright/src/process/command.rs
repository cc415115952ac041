//! `Command` in std's shape.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Output};

use pipewright_os::process::start::{UnixOptions, WindowsOptions};
use pipewright_os::process::std_process::CommandOptions;

use super::{Child, CommandArgs, CommandEnvs, Stdio};

/// A command to run: [`std::process::Command`], run by this crate.
///
/// Each method has std's signature and rules; the [module](super) lists the differences.
pub struct Command(crate::Command);

impl Command {
    /// Creates a command that runs this program with std's defaults.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command(crate::Command::with_std_rules(program.as_ref()))
    }

    /// Adds an argument.
    pub fn arg<S: AsRef<OsStr>>(&mut self, arg: S) -> &mut Command {
        self.0.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<I, S>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.0.args(args);
        self
    }

    /// Sets an environment variable of the child.
    pub fn env<K, V>(&mut self, key: K, val: V) -> &mut Command
    where
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.0.env(key, val);
        self
    }

    /// Sets environment variables of the child.
    pub fn envs<I, K, V>(&mut self, vars: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.0.envs(vars);
        self
    }

    /// Removes an environment variable that the child would inherit.
    pub fn env_remove<K: AsRef<OsStr>>(&mut self, key: K) -> &mut Command {
        self.0.env_remove(key);
        self
    }

    /// Removes every environment variable that the child would inherit, and those set so far.
    pub fn env_clear(&mut self) -> &mut Command {
        self.0.env_clear();
        self
    }

    /// Sets the child's working directory.
    pub fn current_dir<P: AsRef<Path>>(&mut self, dir: P) -> &mut Command {
        self.0.current_dir(dir);
        self
    }

    /// Sets the child's stdin. The default is [`Stdio::inherit`] for `spawn` and `status`, and
    /// [`Stdio::null`] for `output`.
    pub fn stdin<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.0.stdin(cfg.into());
        self
    }

    /// Sets the child's stdout. The default is [`Stdio::inherit`] for `spawn` and `status`, and
    /// [`Stdio::piped`] for `output`.
    pub fn stdout<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.0.stdout(cfg.into());
        self
    }

    /// Sets the child's stderr. The default is [`Stdio::inherit`] for `spawn` and `status`, and
    /// [`Stdio::piped`] for `output`.
    pub fn stderr<T: Into<Stdio>>(&mut self, cfg: T) -> &mut Command {
        self.0.stderr(cfg.into());
        self
    }

    /// Starts the child.
    ///
    /// # Errors
    /// The child could not be started; none is running.
    pub fn spawn(&mut self) -> io::Result<Child> {
        self.0.spawn().map(Child::from).map_err(io_error)
    }

    /// Runs the command to its end and collects its output.
    ///
    /// # Errors
    /// The child could not be started, read from or waited for.
    pub fn output(&mut self) -> io::Result<Output> {
        self.0.output().map(Output::from).map_err(io_error)
    }

    /// Runs the command to its end and returns its exit status.
    ///
    /// # Errors
    /// The child could not be started or waited for.
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.0.status().map(ExitStatus::from).map_err(io_error)
    }

    /// Returns the program, as given.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        self.0.get_program()
    }

    /// Returns the arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.0.get_args()
    }

    /// Returns the environment variables that were set (`Some`) or removed (`None`).
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.0.get_envs()
    }

    /// Returns the working directory, if one was set.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.0.get_current_dir()
    }

    /// Borrows the underlying command, which has the features that std lacks. Its settings apply to the methods
    /// here too.
    ///
    /// It follows the rules of this module: the child inherits every handle that is not close-on-exec, and streams
    /// are read to the end.
    ///
    /// ```
    /// use pipewright::process::Command;
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "echo out; exit 3"]);
    /// let error = command.extended().read().unwrap_err();
    /// assert_eq!(error.to_string(), r#""sh" failed: exit status: 3"#);
    /// ```
    pub fn extended(&mut self) -> &mut crate::Command {
        &mut self.0
    }
}

/// Returns the error in std's shape.
pub(super) fn io_error(error: crate::Error) -> io::Error {
    match error.of_closure() {
        // The closure's own error number, which the caller compares.
        Some(number) => io::Error::from_raw_os_error(number),
        None => error.into(),
    }
}

impl fmt::Debug for Command {
    /// Formats the command as std does. Secret arguments are `"***"`. With `{:#?}`, the number of a handle is that
    /// of a copy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.to_std(false, f.alternate()).fmt(f)
    }
}

impl From<crate::Command> for Command {
    /// Keeps the command's rules: for example, its child still inherits only the listed handles.
    fn from(command: crate::Command) -> Command {
        Command(command)
    }
}

impl From<Command> for crate::Command {
    fn from(command: Command) -> crate::Command {
        command.0
    }
}

impl From<std::process::Command> for Command {
    /// Copies the settings that std's command exposes: program, arguments, environment changes and working
    /// directory. Stdio, `env_clear` and the settings of the extension traits have to be set again.
    fn from(command: std::process::Command) -> Command {
        let visible = crate::Command::from(command);
        let mut ours = crate::Command::with_std_rules(visible.get_program());
        ours.copy_visible(visible);
        Command(ours)
    }
}

impl From<Command> for std::process::Command {
    /// Converts like a [`pipewright::Command`](crate::Command).
    fn from(command: Command) -> std::process::Command {
        command.0.into()
    }
}

impl CommandOptions for Command {
    fn unix_options(&mut self) -> &mut UnixOptions {
        self.0.unix_options()
    }

    fn windows_options(&mut self) -> &mut WindowsOptions {
        self.0.windows_options()
    }

    fn set_arg0(&mut self, name: &OsStr) {
        self.0.set_arg0(name);
    }

    fn push_raw_arg(&mut self, text: &OsStr) {
        self.0.push_raw_arg(text);
    }

    fn replace_process(&mut self) -> io::Error {
        io_error(self.0.exec())
    }
}
