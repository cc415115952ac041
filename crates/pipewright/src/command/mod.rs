//! A command to run: its fields and setters.
//!
//! | file | contents |
//! |---|---|
//! | `env.rs`, `stdio.rs`, `options.rs`, `windows.rs` | more setters, by subject |
//! | `contain.rs` | the setters that hold a tree, and end it with this process |
//! | `limits.rs` | the limits of the tree |
//! | `lifetime.rs` | children that are detached, forgotten or killed on drop |
//! | `verbs.rs`, `task.rs` | the verbs, on a thread and for tasks |
//! | `start.rs` | the start: opens the streams and writes the plan; it may not wait for the answer of a slot |
//! | `pty.rs` | a terminal of its own for the child |
//! | `stage.rs` | a command as a stage of a pipeline |
//! | `convert.rs`, `show.rs` | conversions, and how a command prints |

mod contain;
mod convert;
mod env;
mod lifetime;
mod limits;
mod options;
mod pty;
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
use pipewright_os::process::start::{UnixOptions, WindowsOptions};

pub use contain::{Contain, Scope};
pub use env::CommandEnvs;
pub(crate) use stage::{StageJob, StagePipes, StagePosition, StageStderr};
pub(crate) use start::{BegunChild, StartingChild, StdioDefault, StdioDefaults};
pub use stdio::Stdio;
#[cfg(feature = "tokio")]
pub(crate) use task::async_verbs;
pub(crate) use verbs::{CAPTURED, INHERITED, STDERR_TEED};

use crate::run::RunSettings;
use crate::run::on_demand::HoldTree;
use crate::tree_slot::TreeSlot;
use env::EnvChanges;
use lifetime::Lifetime;
use limits::LimitedTree;
use pty::PtySetting;

/// A command to run, with the names and rules of [`std::process::Command`] and the features that std lacks.
///
/// A command can be run many times. Nothing is looked up, opened or copied until a
/// [verb](crate#which-call-to-use) is called, such as [`run`](Self::run) or [`capture`](Self::capture). A mistake in
/// a setter (a NUL byte, a missing file) is an error of that verb.
///
/// [`pipewright::process::Command`](crate::process::Command) has std's exact shape and rules, for code that should
/// change only its `use` lines.
///
/// # Differences from std
/// Types:
/// * Errors are [`Error`](crate::Error), which converts to [`std::io::Error`]. Results are
///   [`Output`](crate::Output) and [`ExitStatus`](crate::ExitStatus), which convert to std's. `Output` has more
///   fields and cannot be constructed.
/// * The streams of a child are [`PipeReader`](crate::PipeReader) and [`PipeWriter`](crate::PipeWriter), which
///   convert to std's `ChildStdout` and `ChildStdin`.
/// * `wait`, `try_wait` and `kill` of a child take `&self`. The methods of std's extension traits are inherent
///   methods here.
///
/// Start:
/// * The child inherits its stdio, the handles listed by [`inherit`](Self::inherit), and no other handle, however
///   it was opened. [`inherit_all`](Self::inherit_all) restores std's rule.
/// * The child's signal mask is empty; in std it is the mask of the thread that starts the child. In both, SIGPIPE
///   has its default action, and signals that this program ignores stay ignored.
/// * On Unix, the child inherits a copy of this process's environment, which [`std::env::vars_os`] makes when the
///   start begins. Malformed entries, without a `=`, are not passed on. As in std, starting a child while another
///   thread calls [`std::env::set_var`] is safe.
/// * An environment variable with an empty name, or with a `=` in its name, is an error; std passes it on. An empty
///   program name is [`InvalidInput`](crate::ErrorKind::InvalidInput), not `NotFound`.
/// * If the program file is still open for writing, the start is retried for 127 ms.
/// * A script without `#!` is never run by a shell. Std runs it with `/bin/sh` where it forks: with a user, a
///   changed `PATH` or a closure.
/// * Setting a user or groups needs no fork. If root may not drop its groups, [`uid`](Self::uid) without
///   [`groups`](Self::groups) is an error; std keeps the groups.
/// * Windows: a program is also found by the extensions in `PATHEXT`, not only `.exe`. A relative path is resolved
///   in the child's working directory, not the parent's. A cleared environment keeps `SystemRoot`. Arguments that
///   `cmd.exe` could misinterpret are refused for batch files.
///
/// Run:
/// * If another process holds the streams after the child has exited, [`output`](Self::output) and the other capturing
///   verbs read until there was no output for 250 ms, and for at most 5 s. Later output is lost;
///   [`linger(Linger::UntilEof)`](Self::linger) restores std's rule.
/// * [`status`](Self::status) drains and discards piped streams, so it cannot deadlock.
/// * [`Child::kill`](crate::Child::kill) also kills the process group that the child leads, if any, and the
///   descendants that can be found, as timeouts and cancels do. [`Child::signal`](crate::Child::signal) reaches
///   only the child.
/// * [`start_and_forget`](Self::start_and_forget), which std lacks, has null streams by default.
/// * A child dropped without a wait does not become a zombie: a background thread reaps it. Other code must not
///   wait for its pid.
/// * A child holds one more handle than in std until it is dropped: its pidfd (Linux).
/// * [`exec`](Self::exec) refuses piped streams; std drops its end of the pipe.
///
/// The same as in std: stdin is inherited for `spawn` and `status` and null for `output`. A relative program path
/// is resolved in the child's working directory (Unix). A name without a slash is searched for in the child's
/// `PATH` if the command changes the environment. `wait` closes a piped stdin first.
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
/// # Keeping or returning a command
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
    /// Indices into `args` of the arguments that are never printed.
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
    /// Boxed, because few programs need it.
    windows: Option<Box<WindowsOptions>>,
    contain: Contain,
    /// True if the tree is killed when this process ends.
    kill_tree_on_parent_exit: bool,
    /// Holds the tree, if asked to. A pointer, for program size: see [`on_demand`](crate::run::on_demand).
    hold_tree: Option<HoldTree>,
    /// The limits of the tree. Boxed, because few programs need it.
    limits: Option<Box<LimitedTree>>,
    /// The slot that holds the tree, instead.
    slot: Option<TreeSlot>,
    lifetime: Lifetime,
    pty: Option<PtySetting>,
    options: RunSettings,
}

/// The arguments of a [`Command`], from [`Command::get_args`].
#[derive(Clone)]
pub struct CommandArgs<'a>(std::slice::Iter<'a, OsString>);

impl Command {
    /// Makes a command for this program.
    ///
    /// A name without a separator is searched for in `PATH`: the child's if the command sets one, otherwise this
    /// process's. A relative path is resolved in the child's working directory.
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
            kill_tree_on_parent_exit: false,
            hold_tree: None,
            limits: None,
            slot: None,
            lifetime: Lifetime::default(),
            pty: None,
            options: RunSettings::default(),
        }
    }

    /// Adds an argument. The program receives it unchanged: no shell is involved.
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

    /// Adds an argument that is never printed: not by `Debug`, not in errors, not in reports.
    ///
    /// Other programs of the same user can still read it while the child runs (`ps`).
    pub fn secret_arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        self.secret_args.push(self.args.len());
        self.arg(arg)
    }

    /// Sets `argv[0]`, the name that the program sees as its own. Unix only.
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

    /// Removes an environment variable that the child would inherit.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Command {
        self.env.remove(key.as_ref());
        self
    }

    /// Makes the child inherit no environment variable, and discards those set so far. On Windows it still inherits
    /// `SystemRoot`.
    pub fn env_clear(&mut self) -> &mut Command {
        self.env.clear();
        self
    }

    /// Sets the child's working directory.
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Command {
        self.current_dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Sets the child's stdin. By default `status`, `run` and `spawn` inherit it, and the capturing verbs use an
    /// empty stdin.
    #[doc(alias = "input")]
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Command {
        self.stdin = Some(stdin.into());
        self
    }

    /// Sets the child's stdout. By default `status`, `run` and `spawn` inherit it, and the capturing verbs capture
    /// it.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Command {
        self.stdout = Some(stdout.into());
        self
    }

    /// Sets the child's stderr. By default `status` and `spawn` inherit it, `run` passes it through and keeps its
    /// last part for the error, and the capturing verbs capture it.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Command {
        self.stderr = Some(stderr.into());
        self
    }

    /// Sends the child's stderr to its stdout, through the same handle, so the output keeps its exact order.
    /// Overrides [`stderr`](Self::stderr).
    pub fn merge_stderr(&mut self) -> &mut Command {
        self.merge_stderr = true;
        self
    }

    /// Returns the command by value, to end a chain of setters. Leaves `self` empty.
    ///
    /// The setters return `&mut Command`, which must not outlive the command: see
    /// [Keeping or returning a command](Self#keeping-or-returning-a-command).
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

    /// Returns the program, as given.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        &self.program
    }

    /// Returns the arguments, including secret ones.
    pub fn get_args(&self) -> CommandArgs<'_> {
        CommandArgs(self.args.iter())
    }

    /// Returns the environment variables that were set (`Some`) or removed (`None`).
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.env.changes()
    }

    /// Returns the working directory, if one was set.
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
        // Like std's derived one.
        f.debug_struct("CommandArgs").field("inner", &self.0.as_slice()).finish()
    }
}
