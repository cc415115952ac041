//! A command to run: its fields and setters.
//!
//! | file | contents |
//! |---|---|
//! | `env.rs`, `stdio.rs`, `options.rs`, `windows.rs` | more setters, by subject |
//! | `contain.rs` | the setters that hold a tree, and end it with this process |
//! | `lifetime.rs` | children that are detached, forgotten or killed on drop |
//! | `verbs.rs`, `task.rs` | the verbs, on a thread and for tasks |
//! | `start.rs` | the start: opens the streams and writes the plan |
//! | `stage.rs` | a command as a stage of a pipeline |
//! | `convert.rs`, `show.rs` | conversions, and how a command prints |

mod contain;
mod convert;
mod env;
mod lifetime;
mod options;
mod show;
mod stage;
mod start;
mod stdio;
#[cfg(feature = "tokio")]
mod task;
mod verbs;
mod windows;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use pipewright_os::base::handle::Handle;
use pipewright_os::process::spawn::{UnixOptions, WindowsOptions};

pub use contain::{Contain, Scope};
pub use env::CommandEnvs;
pub(crate) use stage::{StagePipes, StagePosition, StageStderr};
pub(crate) use start::{StdioDefault, StdioDefaults};
pub use stdio::Stdio;
#[cfg(feature = "tokio")]
pub(crate) use task::async_verbs;
pub(crate) use verbs::{CAPTURED, OURS, REMEMBERED};

use crate::run::Options;
use crate::run::on_demand::HoldTree;
use env::EnvChanges;
use lifetime::Lifetime;

/// A command to run, with the names and rules of [`std::process::Command`], and what std lacks.
///
/// It can be run many times. Nothing is looked up, opened or copied before a verb is called, and a
/// mistake in a setter (a NUL byte, a missing file) is an error of that verb.
///
/// [`pipewright::process::Command`](crate::process::Command) is the one in std's exact shape and with std's rules,
/// for code whose `use` line is all that is to change.
///
/// # Differences from std
/// Types:
/// * Errors are [`Error`](crate::Error), which converts to [`std::io::Error`]. Results are [`Output`](crate::Output)
///   and [`ExitStatus`](crate::ExitStatus), which convert to std's; `Output` has more fields, and cannot be built.
/// * The streams of a child are [`PipeReader`](crate::PipeReader) and [`PipeWriter`](crate::PipeWriter), which convert
///   to std's `ChildStdout` and `ChildStdin`.
/// * `wait`, `try_wait` and `kill` of a child take `&self`. What std has in extension traits is a method here.
///
/// The start:
/// * The child inherits its stdio and what [`inherit`](Self::inherit) lists, and no other handle,
///   however it was opened; [`inherit_all`](Self::inherit_all) restores std's rule.
/// * Its signal mask is empty; std's child has that of the thread that starts it. With both, SIGPIPE is at its default,
///   and a signal that this program ignores is ignored.
/// * On Unix the child inherits a copy of our environment, made by [`std::env::vars_os`] when the
///   start begins. Malformed entries, without a `=`, are not passed on. As with std, a child may be
///   started while another thread is in [`std::env::set_var`].
/// * An environment variable without a name, or with a `=` in it, is an error; std passes it on. A program without a
///   name is [`InvalidInput`](crate::ErrorKind::InvalidInput), not `NotFound`.
/// * A program file that something still writes to is tried again for 127 ms.
/// * A script without `#!` is never given to a shell. Std gives it to `/bin/sh` where it forks: with a user, a changed
///   `PATH` or a closure.
/// * A user or groups cost no fork. Where root may not drop its groups, [`uid`](Self::uid) without
///   [`groups`](Self::groups) is an error; std keeps them then.
/// * Windows: a program is also found by the extensions in `PATHEXT`, not by `.exe` alone, and a relative path is taken
///   from the child's working directory, not from ours. A cleared environment keeps `SystemRoot`. Arguments that `cmd.exe` could
///   take for something else are refused for batch files.
///
/// The run:
/// * [`output`](Self::output) and the other verbs that capture read on when the child has ended and something else
///   holds its streams, but not for ever: until 250 ms pass without output, and for at most 5 s. What is written later
///   is lost; [`linger(Linger::UntilEof)`](Self::linger) restores std's rule.
/// * [`status`](Self::status) of a command with piped streams drains and discards them: it cannot deadlock.
/// * [`Child::kill`](crate::Child::kill) also kills the group that the child leads and the descendants that can be
///   found, as timeouts and cancels do; [`Child::signal`](crate::Child::signal) reaches the child alone.
///   [`start_and_forget`](Self::start_and_forget) has null streams by default.
/// * A child that is dropped without being waited for does not become a zombie: a background thread reaps it. Other code must not wait for
///   its number.
/// * A child that is not dropped holds a handle, its pidfd (Linux).
/// * [`exec`](Self::exec) refuses streams that are piped; std drops its end of the pipe.
///
/// What is as with std, though one may wonder: stdin is ours for `spawn` and `status` and null for `output`; a relative
/// program is taken from the child's working directory (Unix), and one without a slash is looked for in the child's `PATH` where
/// the command changes the environment; `wait` closes a piped stdin first.
///
/// ```
/// use pipewright::{Command, Stdio};
///
/// let output = Command::new("tr")
///     .args(["a-z", "A-Z"])
///     .stdin(Stdio::bytes("hello"))
///     .output()?;
/// assert_eq!(output.stdout, b"HELLO");
/// # Ok::<(), pipewright::Error>(())
/// ```
///
/// # A command that is kept or returned
/// As in std, the setters return `&mut Command`. A chain that ends with a setter is therefore a
/// reference to a temporary: a closure or function that returns it fails to compile with E0515
/// ("cannot return value referencing temporary value"), and a `let` with E0716. End such a chain
/// with [`owned`](Self::owned), which returns the command by value:
///
/// ```
/// use pipewright::{Command, run_all};
/// // Without `owned()`: error[E0515].
/// let compile = |name: &str| Command::new("echo").arg("compiled").arg(name).owned();
/// let captures = run_all(["a.c", "b.c"].map(compile)).captures();
/// assert!(captures.into_iter().all(|capture| capture.is_ok_and(|it| it.success())));
/// ```
#[must_use = "a command does nothing until a verb such as `status` or `capture` is called"]
pub struct Command {
    program: OsString,
    arg0: Option<OsString>,
    args: Vec<OsString>,
    /// Indices into `args` of what is never printed.
    secret_args: Vec<usize>,
    env: EnvChanges,
    current_dir: Option<PathBuf>,
    stdin: Option<Stdio>,
    stdout: Option<Stdio>,
    stderr: Option<Stdio>,
    merge_stderr: bool,
    inherit: Vec<(Handle, Option<i32>)>,
    inherit_all: bool,
    unix: UnixOptions,
    /// Few programs ask for any of it.
    windows: Option<Box<WindowsOptions>>,
    contain: Contain,
    /// The tree is killed when this process ends.
    ends_with_us: bool,
    /// Holds the tree, if it is held. By a pointer: see [`on_demand`](crate::run::on_demand).
    hold_tree: Option<HoldTree>,
    lifetime: Lifetime,
    options: Options,
}

/// The arguments of a [`Command`], from [`Command::get_args`].
#[derive(Clone)]
pub struct CommandArgs<'a>(std::slice::Iter<'a, OsString>);

impl Command {
    /// A command for that program.
    ///
    /// A name without a separator is searched for in `PATH`: the child's, where the command sets
    /// one, else this process's. A relative path is taken from the child's working directory.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        Command {
            program: program.as_ref().to_owned(),
            arg0: None,
            args: Vec::new(),
            secret_args: Vec::new(),
            env: EnvChanges::default(),
            current_dir: None,
            stdin: None,
            stdout: None,
            stderr: None,
            merge_stderr: false,
            inherit: Vec::new(),
            inherit_all: false,
            unix: UnixOptions::default(),
            windows: None,
            contain: Contain::None,
            ends_with_us: false,
            hold_tree: None,
            lifetime: Lifetime::default(),
            options: Options::default(),
        }
    }

    /// Adds an argument. It reaches the program as it is: no shell looks at it.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<I>(&mut self, args: I) -> &mut Command
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds an argument that is never printed: not by `Debug`, not in an error, not in a report.
    ///
    /// Other programs of the same user can still read it while the child runs (`ps`).
    pub fn secret_arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        self.secret_args.push(self.args.len());
        self.arg(arg)
    }

    /// Sets the name that the program is told it has (`argv[0]`). Unix only.
    pub fn arg0(&mut self, name: impl AsRef<OsStr>) -> &mut Command {
        self.arg0 = Some(name.as_ref().to_owned());
        self
    }

    /// Sets an environment variable of the child.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Command {
        self.env.set(key.as_ref(), value.as_ref());
        self
    }

    /// Sets environment variables of the child.
    pub fn envs<I, K, V>(&mut self, variables: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        for (key, value) in variables {
            self.env.set(key.as_ref(), value.as_ref());
        }
        self
    }

    /// Leaves out an environment variable that the child would inherit.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Command {
        self.env.remove(key.as_ref());
        self
    }

    /// Lets the child inherit no environment variable, and forgets those set so far.
    pub fn env_clear(&mut self) -> &mut Command {
        self.env.clear();
        self
    }

    /// Sets the child's working directory.
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Command {
        self.current_dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Sets the child's stdin. Where it is not set, `status`, `run` and `spawn` let the child use
    /// ours, and the verbs that capture give it nothing to read.
    #[doc(alias = "input")]
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Command {
        self.stdin = Some(stdin.into());
        self
    }

    /// Sets the child's stdout. Where it is not set, `status`, `run` and `spawn` let the child use
    /// ours, and the verbs that capture capture it.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Command {
        self.stdout = Some(stdout.into());
        self
    }

    /// Sets the child's stderr. Where it is not set, `status` and `spawn` let the child use ours,
    /// `run` passes it through and remembers its end, and the verbs that capture capture it.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Command {
        self.stderr = Some(stderr.into());
        self
    }

    /// Sends the child's stderr where its stdout goes, by one handle: so what it writes to both
    /// keeps its exact order. Overrides [`stderr`](Self::stderr).
    pub fn merge_stderr(&mut self) -> &mut Command {
        self.merge_stderr = true;
        self
    }

    /// Returns the command by value, at the end of a chain of setters. The command it is called on
    /// is left empty.
    ///
    /// The setters return `&mut Command`, which must not outlive the command itself: see
    /// [the command's own page](Self#a-command-that-is-kept-or-returned).
    ///
    /// ```
    /// use pipewright::Command;
    /// let sort = Command::new("sort").arg("-n").owned();
    /// let mut pipeline = Command::new("printf").arg(r"10\n9\n").owned() | sort;
    /// assert_eq!(pipeline.read()?, "9\n10");
    /// # Ok::<(), pipewright::Error>(())
    /// ```
    #[doc(alias = "take")]
    #[doc(alias = "build")]
    pub fn owned(&mut self) -> Command {
        std::mem::replace(self, Command::new(""))
    }

    /// The program, as it was given.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        &self.program
    }

    /// The arguments, secret ones included.
    pub fn get_args(&self) -> CommandArgs<'_> {
        CommandArgs(self.args.iter())
    }

    /// The environment variables that were set (`Some`) or removed (`None`).
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.env.changes()
    }

    /// The working directory, if one was set.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.current_dir.as_deref()
    }
}

impl<'a> Iterator for CommandArgs<'a> {
    type Item = &'a OsStr;

    fn next(&mut self) -> Option<&'a OsStr> {
        self.0.next().map(OsString::as_os_str)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for CommandArgs<'_> {}

impl fmt::Debug for CommandArgs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As std's derived one.
        f.debug_struct("CommandArgs").field("inner", &self.0.as_slice()).finish()
    }
}
