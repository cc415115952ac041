//! [`std::process`] in std's exact shape.
//!
//! Change `use std::process` to `use pipewright::process`, and `std::os::unix::process` to
//! `pipewright::process::unix`, and a program compiles as before: names, signatures, fields and traits are std's.
//! The types that other crates exchange are std's own: [`ExitStatus`], [`Output`], [`ChildStdin`], [`ChildStdout`],
//! [`ChildStderr`], [`ExitCode`].
//!
//! ```
//! use pipewright::process::{Command, Output, Stdio};
//! use std::io;
//!
//! fn version(program: &str) -> io::Result<String> {
//!     let Output { status, stdout, .. } = Command::new(program)
//!         .arg("--version")
//!         .stderr(Stdio::inherit())
//!         .output()?;
//!     if !status.success() {
//!         return Err(io::Error::other(status.to_string()));
//!     }
//!     Ok(String::from_utf8_lossy(&stdout).into_owned())
//! }
//! # version("rustc").or_else(|_| version("ls"))?;
//! # Ok::<(), io::Error>(())
//! ```
//!
//! # Features that std lacks
//! [`Command::extended`] borrows the underlying [`pipewright::Command`](crate::Command), with timeouts, trees and
//! limits. `status`, `output` and `spawn` then apply the settings made there. `From` converts commands and children
//! both ways.
//!
//! ```
//! use pipewright::process::Command;
//! use std::time::Duration;
//!
//! let mut command = Command::new("sleep");
//! command.arg("60").extended().timeout(Duration::from_millis(50));
//! assert!(!command.status()?.success());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Errors
//! Every call returns [`std::io::Error`], with the [`kind`](std::io::Error::kind) that std's error would have. It
//! contains a [`pipewright::Error`](crate::Error), which has the directories searched and the missing file:
//!
//! ```
//! use pipewright::process::Command;
//! let error = Command::new("no-such-program").spawn().unwrap_err();
//! assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
//! let inside = error.get_ref().and_then(|inside| inside.downcast_ref::<pipewright::Error>());
//! assert!(inside.unwrap().raw_os_error().is_some());
//! ```
//!
//! An [`std::io::Error`] holds either an error or an OS error number, never both. So its
//! [`raw_os_error`](std::io::Error::raw_os_error) is `None` here, and the number is in the error inside. The
//! exception is a failed `pre_exec` closure: its error is the number that the closure returned, and nothing else.
//!
//! # Differences from std
//! * An error contains a [`pipewright::Error`](crate::Error), so its text differs and it has no `raw_os_error` of
//!   its own.
//! * A [`Child`] dropped without a wait does not become a zombie: a background thread reaps it. Other code must not
//!   wait for its pid.
//! * If another process still writes to the program file (`ETXTBSY`), the start is retried for 127 ms.
//! * A script without `#!` is never run by `/bin/sh`. Std does that only where it forks (a user, a group or a
//!   closure is set, or `PATH` is changed).
//! * [`Command::status`] drains and discards piped streams; with std, the child blocks forever once the pipe is
//!   full.
//! * `exec` with a piped stream is an error; std drops the other end of the pipe.
//! * A [`Child`] holds one more handle, a pidfd, until it is dropped (Linux).
//! * `before_exec` is `unsafe` in every edition.
//! * Windows: a program is also found by the extensions in `PATHEXT`. A cleared environment keeps `SystemRoot`.
//!   [`Child`] does not convert to an `OwnedHandle` (it has `AsHandle` and `AsRawHandle`).
//! * The unstable methods of std are missing; [`Command::extended`] has most of them.
//!
//! Crates that take a `&mut std::process::Command`, or implement a trait of their own for it, have to be ported
//! too.
//!
//! # Platform
//! Linux: a user or groups need no fork, unlike in std; a `pre_exec` closure does. macOS: any of these needs a
//! fork, as in std. Windows: the module `unix` is missing, and `windows` has the traits of
//! `std::os::windows::process`.

use std::ffi::OsStr;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::{fmt, io};

use pipewright_os::process::start::{UnixOptions, WindowsOptions};
use pipewright_os::process::std_process::CommandOptions;

use crate::Signal;

pub use crate::command::{CommandArgs, CommandEnvs};
pub use pipewright_os::process::std_process::Stdio;
pub use pipewright_os::process::std_process::platform::*;
pub use std::process::{
    ChildStderr, ChildStdin, ChildStdout, ExitCode, ExitStatus, Output, Termination, abort, exit,
    id,
};

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
fn io_error(error: crate::Error) -> io::Error {
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

/// A running child, or one that has ended: [`std::process::Child`], with std's streams.
///
/// # Drop
/// The child keeps running. Unlike in std, it does not become a zombie.
pub struct Child {
    /// The parent's end of the child's stdin, if piped.
    pub stdin: Option<ChildStdin>,
    /// The parent's end of the child's stdout, if piped.
    pub stdout: Option<ChildStdout>,
    /// The parent's end of the child's stderr, if piped.
    pub stderr: Option<ChildStderr>,
    /// The child, without its streams. `UnwindSafe` like std's `Child`: its state is behind locks and in the
    /// kernel.
    inner: AssertUnwindSafe<crate::Child>,
}

impl Child {
    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// Kills the child alone. A child that has already ended is not an error.
    ///
    /// # Errors
    /// The child changed its user, so this process may not signal it.
    pub fn kill(&mut self) -> io::Result<()> {
        self.inner.signal(Signal::KILL).map(drop).map_err(io_error)
    }

    /// Closes the child's stdin if it was not taken, waits until the child has ended, and returns its exit status.
    /// Later calls return the same status.
    ///
    /// # Errors
    /// Other code waited for the child, and its status is lost.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.inner.wait().map(ExitStatus::from).map_err(io_error)
    }

    /// Returns the exit status, or `None` while the child runs.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait().map(|status| status.map(ExitStatus::from)).map_err(io_error)
    }

    /// Closes the child's stdin, reads the streams that were not taken to the end, and waits for the child.
    ///
    /// # Errors
    /// The child could not be read from or waited for.
    pub fn wait_with_output(self) -> io::Result<Output> {
        crate::Child::from(self).wait_with_output().map(Output::from).map_err(io_error)
    }
}

impl From<crate::Child> for Child {
    /// Converts the streams to std's. The command's rules still apply.
    fn from(mut child: crate::Child) -> Child {
        Child {
            stdin: child.stdin.take().map(ChildStdin::from),
            stdout: child.stdout.take().map(ChildStdout::from),
            stderr: child.stderr.take().map(ChildStderr::from),
            inner: AssertUnwindSafe(child),
        }
    }
}

impl From<Child> for crate::Child {
    fn from(child: Child) -> crate::Child {
        let Child { stdin, stdout, stderr, inner: AssertUnwindSafe(mut inner) } = child;
        inner.stdin = stdin.map(crate::ChildStdin::from);
        inner.stdout = stdout.map(crate::ChildStdout::from);
        inner.stderr = stderr.map(crate::ChildStderr::from);
        inner
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}

pipewright_os::child_handle_traits!(Child, inner);
