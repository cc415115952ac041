//! A command to run: its fields and setters, its conversions, and how it prints.
//!
//! | file | contents |
//! |---|---|
//! | `stdio.rs` | the streams of the child, or a terminal of its own |
//! | `contain.rs` | the setters that hold a tree, limit it and end it with this process; children that are detached or killed on drop; a slot for the trees of many commands |
//! | `start.rs`, `task.rs` | the verbs, on a thread and for tasks; the start, which may not wait for the answer of a slot |
//! | `aside.rs` | a start on a thread of its own, which waits for a file or a directory |
//! | `stage.rs` | a command as a stage of a pipeline |

mod aside;
mod contain;
mod stage;
mod start;
mod stdio;
#[cfg(feature = "tokio")]
mod task;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::{fmt, io, slice};

use pipewright_os::base::handle::Handle;
use pipewright_os::base::signal::Signal;
use pipewright_os::process::start::{
    Env, EnvSnapshot, Group, REQUIRED_VARIABLES, Resource, ResourceLimit, Search, UnixOptions,
    WindowsOptions, compare_names,
};
use pipewright_os::process::std_process::{
    CommandOptions, ParentStream, Stdio as StdStdio, apply_to_std, push_arg,
};

use crate::run::Linger;
use crate::run::on_demand::HoldTree;
use crate::run::{RunSettings, option_setters};
use contain::{Lifetime, LimitedTree};
use stdio::{Choice, PtySetting};

pub(crate) use aside::Aside;
pub use contain::{Contain, Scope, TreeSlot};
pub(crate) use stage::{StageJob, StagePipes, StagePosition, StageStderr};
pub(crate) use start::{
    BegunChild, CAPTURED, INHERITED, STDERR_TEED, StartingChild, StdioDefault, StdioDefaults,
};
pub use stdio::Stdio;
#[cfg(feature = "tokio")]
pub(crate) use task::async_verbs;

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
        self.options.see_to_end();
        self.stdin = Some(stdin.into());
        self
    }

    /// Sets the child's stdout. By default `status`, `run` and `spawn` inherit it, and the capturing verbs capture
    /// it.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Command {
        self.options.see_to_end();
        self.stdout = Some(stdout.into());
        self
    }

    /// Sets the child's stderr. By default `status` and `spawn` inherit it, `run` passes it through and keeps its
    /// last part for the error, and the capturing verbs capture it.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Command {
        self.options.see_to_end();
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

/// The changes that a command makes to the environment of its child.
#[derive(Debug, Clone, Default)]
struct EnvChanges {
    clear: bool,
    /// Sorted by name, each name once. For so few entries a vector is faster than a map.
    variables: Vec<(OsString, Option<OsString>)>,
}

/// The environment variables that a command sets or removes, from
/// [`Command::get_envs`](crate::Command::get_envs).
#[derive(Clone)]
pub struct CommandEnvs<'a>(slice::Iter<'a, (OsString, Option<OsString>)>);

/// The complete environment of one child.
#[derive(Debug)]
enum ChildEnv {
    /// This process's environment, unchanged.
    Inherited(EnvSnapshot),
    /// The changed environment, sorted by name.
    Changed(Vec<(OsString, OsString)>),
}

impl ChildEnv {
    fn as_plan(&self) -> Env<'_> {
        match self {
            ChildEnv::Inherited(own) => Env::Inherit(own),
            ChildEnv::Changed(variables) => Env::Exactly(variables),
        }
    }

    /// Returns the search path for a program name without a separator: the child's `PATH`, as in std.
    fn search(&self) -> Search<'_> {
        let path = match self {
            ChildEnv::Inherited(own) => own.search_path(),
            ChildEnv::Changed(variables) => find(variables, OsStr::new("PATH"))
                .ok()
                .and_then(|at| variables.get(at))
                .map(|(_, value)| value.as_os_str()),
        };
        path.map_or(Search::Default, Search::Path)
    }
}

impl EnvChanges {
    fn set(&mut self, key: &OsStr, value: &OsStr) {
        put(&mut self.variables, key, Some(value.to_owned()));
    }

    fn remove(&mut self, key: &OsStr) {
        if !self.clear || survives_clear(key) {
            put(&mut self.variables, key, None);
        } else if let Ok(at) = find(&self.variables, key) {
            self.variables.remove(at);
        }
    }

    fn clear(&mut self) {
        self.clear = true;
        self.variables.clear();
    }

    fn is_clear(&self) -> bool {
        self.clear
    }

    fn changes(&self) -> CommandEnvs<'_> {
        CommandEnvs(self.variables.iter())
    }

    /// Builds the child's environment. It reads this process's environment once, and only through `std::env`: std's
    /// lock is private, and reading without it may read freed memory.
    fn apply(&self) -> ChildEnv {
        if !self.clear && self.variables.is_empty() {
            return ChildEnv::Inherited(EnvSnapshot::take());
        }
        let mut whole = Vec::new();
        if self.clear {
            for key in REQUIRED_VARIABLES {
                if let Some(value) = std::env::var_os(key) {
                    put(&mut whole, OsStr::new(key), value);
                }
            }
        } else {
            for (key, value) in std::env::vars_os() {
                put(&mut whole, &key, value);
            }
        }
        for (key, value) in &self.variables {
            match value {
                Some(value) => put(&mut whole, key, value.clone()),
                None => drop(find(&whole, key).map(|at| whole.remove(at))),
            }
        }
        ChildEnv::Changed(whole)
    }
}

fn find<T>(variables: &[(OsString, T)], key: &OsStr) -> Result<usize, usize> {
    variables.binary_search_by(|(name, _)| compare_names(name, key))
}

/// Returns true if `env_clear` keeps this variable; only `env_remove` by name removes it.
fn survives_clear(key: &OsStr) -> bool {
    REQUIRED_VARIABLES.iter().any(|name| compare_names(OsStr::new(name), key).is_eq())
}

fn put<T>(variables: &mut Vec<(OsString, T)>, key: &OsStr, value: T) {
    match find(variables, key) {
        Ok(at) => variables[at].1 = value,
        Err(at) => variables.insert(at, (key.to_owned(), value)),
    }
}

impl<'a> Iterator for CommandEnvs<'a> {
    type Item = (&'a OsStr, Option<&'a OsStr>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key.as_os_str(), value.as_deref()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for CommandEnvs<'_> {}

impl fmt::Debug for CommandEnvs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Like std's derived one.
        let changes: Vec<_> = self.clone().collect();
        f.debug_struct("CommandEnvs").field("iter", &changes).finish()
    }
}

option_setters!(Command);

/// Handles that the child inherits besides stdio.
impl Command {
    /// Lets the child inherit this handle, under the same number. The command keeps it open.
    ///
    /// Unless [`inherit_all`](Self::inherit_all) is set, the child inherits no handle that is not listed, even if it
    /// is not close-on-exec or is marked inheritable.
    ///
    /// # Platform
    /// Unix: the handle is not marked inheritable in this process, so no other child gets it. Windows: the handle
    /// is marked inheritable during the start, because a copy would have another number. Other children that this
    /// crate starts meanwhile do not get it; children that std starts may.
    pub fn inherit(&mut self, handle: impl Into<Handle>) -> &mut Command {
        self.inherit.push((handle.into(), None));
        self
    }

    /// Lets the child inherit this handle as fd `number`, 3 or more. Unix only.
    pub fn inherit_fd_as(&mut self, handle: impl Into<Handle>, number: i32) -> &mut Command {
        self.inherit.push((handle.into(), Some(number)));
        self
    }

    /// Restores std's rule: the child inherits every handle that is not close-on-exec (Windows: every handle that
    /// is marked inheritable).
    pub fn inherit_all(&mut self) -> &mut Command {
        self.inherit_all = true;
        self
    }
}

/// Unix options. On Windows the verb fails with [`Unsupported`](crate::ErrorKind::Unsupported), except for
/// [`own_group`](Self::own_group), [`own_session`](Self::own_session) and
/// [`process_group(0)`](Self::process_group).
impl Command {
    /// Makes the child the leader of its own process group. A stop then reaches the whole group; Ctrl-C at the
    /// terminal does not.
    ///
    /// # Platform
    /// Unix: `setpgid`. Windows: `CREATE_NEW_PROCESS_GROUP`. A stop is then a Ctrl-Break if the child shares this
    /// process's console; without its own group, a child can only be killed.
    #[doc(alias = "new_group")]
    #[doc(alias = "setpgid")]
    #[doc(alias = "CREATE_NEW_PROCESS_GROUP")]
    pub fn own_group(&mut self) -> &mut Command {
        self.process_group(0)
    }

    /// Puts the child in the process group with this id; 0 makes a new group. The name is std's.
    pub fn process_group(&mut self, group: i32) -> &mut Command {
        self.unix.set_process_group(group);
        self
    }

    /// Starts the child in its own session, without a terminal.
    ///
    /// # Platform
    /// Unix: `setsid`. Windows: `CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP`.
    pub fn own_session(&mut self) -> &mut Command {
        self.unix.group = Group::Session;
        self
    }

    /// Sets the child's user id. If root sets it without [`groups`](Self::groups), the child has no supplementary
    /// groups.
    pub fn uid(&mut self, user: u32) -> &mut Command {
        self.unix.identity.user = Some(user);
        self
    }

    /// Sets the child's group id.
    pub fn gid(&mut self, group: u32) -> &mut Command {
        self.unix.identity.group = Some(group);
        self
    }

    /// Sets the child's supplementary groups.
    pub fn groups(&mut self, groups: &[u32]) -> &mut Command {
        self.unix.identity.groups = Some(groups.to_owned());
        self
    }

    /// Sets the child's umask.
    pub fn umask(&mut self, mask: u32) -> &mut Command {
        self.unix.umask = Some(mask);
        self
    }

    /// Adds to the child's niceness. A higher value is less urgent; lowering it needs a privilege.
    pub fn nice(&mut self, add: i32) -> &mut Command {
        self.unix.nice = Some(add);
        self
    }

    /// Gives the child the default action of a signal that this process ignores. Children always have that of `PIPE`;
    /// other signals that this process ignores stay ignored without this. Not for a command in a
    /// [slot](Self::contain_in).
    pub fn default_signal(&mut self, signal: Signal) -> &mut Command {
        self.unix.default_signals.push(signal);
        self
    }

    /// Leaves `PIPE` ignored in the child if this process ignores it. Rust programs do so from the start, so this is
    /// for a tool that knows what it was started with.
    #[doc(hidden)]
    pub fn keep_ignored_pipe(&mut self) -> &mut Command {
        self.unix.keeps_ignored_pipe = true;
        self
    }

    /// Limits one resource of the child; `None` means no limit.
    pub fn rlimit(
        &mut self,
        resource: Resource,
        soft: Option<u64>,
        hard: Option<u64>,
    ) -> &mut Command {
        self.unix.limits.push(ResourceLimit { resource, soft, hard });
        self
    }

    /// Sets the child's root directory. The default working directory is then `/` inside it.
    pub fn chroot(&mut self, root: impl AsRef<Path>) -> &mut Command {
        self.unix.chroot = Some(root.as_ref().to_owned());
        self
    }
}

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

impl Command {
    /// Makes a command that follows std's rules where this crate's rules differ.
    pub(crate) fn with_std_rules(program: &OsStr) -> Command {
        let mut command = Command::new(program);
        command.inherit_all = true;
        command.unix.std_rules = true;
        command.options.rules.linger = Linger::UntilEof;
        command
    }

    /// Copies the settings that std's command exposes.
    pub(crate) fn copy_visible(&mut self, visible: Command) {
        self.args = visible.args;
        self.env = visible.env;
        self.current_dir = visible.current_dir;
    }

    /// Makes a std command with everything that std has setters for, except closures. Handles are copied. A stream
    /// that std does not have, or whose handle cannot be copied, stays unset.
    pub(crate) fn to_std(&self, with_secrets: bool, with_stdio: bool) -> std::process::Command {
        let mut theirs = std::process::Command::new(&self.program);
        for (index, arg) in self.args.iter().enumerate() {
            let is_hidden = !with_secrets && self.secret_args.contains(&index);
            let is_raw = self.windows.as_ref().is_some_and(|it| it.raw_args.contains(&index));
            push_arg(&mut theirs, if is_hidden { OsStr::new("***") } else { arg }, is_raw);
        }
        if self.env.is_clear() {
            theirs.env_clear();
        }
        for (key, value) in self.get_envs() {
            match value {
                Some(value) => theirs.env(key, value),
                None => theirs.env_remove(key),
            };
        }
        if let Some(dir) = &self.current_dir {
            theirs.current_dir(dir);
        }
        apply_to_std(&mut theirs, self.arg0.as_deref(), &self.unix, self.windows.as_deref());
        if with_stdio {
            let std_of = |stdio: &Option<Stdio>| stdio.as_ref().and_then(Stdio::to_std);
            let _ = std_of(&self.stdin).map(|stdio| theirs.stdin(stdio));
            let _ = std_of(&self.stdout).map(|stdio| theirs.stdout(stdio));
            let _ = std_of(&self.stderr).map(|stdio| theirs.stderr(stdio));
        }
        theirs
    }
}

impl Stdio {
    /// Returns std's equivalent, or `None` if there is none.
    fn to_std(&self) -> Option<std::process::Stdio> {
        Some(match &self.0 {
            Choice::Inherit => std::process::Stdio::inherit(),
            Choice::Null => std::process::Stdio::null(),
            Choice::Piped(_) => std::process::Stdio::piped(),
            Choice::Parent(ParentStream::Stdout) => io::stdout().into(),
            Choice::Parent(ParentStream::Stderr) => io::stderr().into(),
            Choice::Handle(handle) => {
                let copy: Handle = handle.try_clone().ok()?;
                StdStdio::from(copy).into()
            }
            _ => return None,
        })
    }
}

impl From<std::process::Command> for Command {
    /// Copies the settings that std's command exposes: program, arguments, environment changes and working
    /// directory. Stdio, `env_clear` and the settings of the extension traits are not exposed and have to be set
    /// again.
    fn from(command: std::process::Command) -> Command {
        let mut ours = Command::new(command.get_program());
        ours.args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => ours.env(key, value),
                None => ours.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            ours.current_dir(dir);
        }
        ours
    }
}

impl From<Command> for std::process::Command {
    /// Copies the settings that std has stable setters for: program, arguments, environment, working directory, the
    /// settings of std's extension traits, and stdio that is inherited, null, piped or a handle.
    fn from(mut command: Command) -> std::process::Command {
        let mut theirs = command.to_std(true, true);
        command.unix.move_closures_to_std(&mut theirs);
        theirs
    }
}

impl CommandOptions for Command {
    fn unix_options(&mut self) -> &mut UnixOptions {
        &mut self.unix
    }

    fn windows_options(&mut self) -> &mut WindowsOptions {
        self.windows.get_or_insert_default()
    }

    fn set_arg0(&mut self, name: &OsStr) {
        self.arg0(name);
    }

    fn push_raw_arg(&mut self, text: &OsStr) {
        self.raw_arg(text);
    }

    fn replace_process(&mut self) -> io::Error {
        self.exec().into()
    }
}

impl fmt::Debug for Command {
    /// Formats as std does: the program and its arguments in quotes. Secret arguments are `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.program)?;
        for (index, arg) in self.args.iter().enumerate() {
            if self.secret_args.contains(&index) {
                f.write_str(" ***")?;
            } else {
                write!(f, " {arg:?}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    /// Formats the command as typed in a shell, on one line. Secret arguments are `***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_word(&self.program, f)?;
        for (index, arg) in self.args.iter().enumerate() {
            f.write_str(" ")?;
            if self.secret_args.contains(&index) {
                f.write_str("***")?;
            } else {
                show_word(arg, f)?;
            }
        }
        Ok(())
    }
}

fn show_word(word: &OsStr, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let text = word.to_string_lossy();
    if !text.is_empty() && text.chars().all(plain) {
        return f.write_str(&text);
    }
    if text.chars().any(char::is_control) {
        // $'...' has escapes; plain quotes would break the line.
        return write!(f, "$'{}'", text.escape_default());
    }
    write!(f, "'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::Command;

    #[test]
    fn a_command_prints_as_a_shell_would_read_it() {
        let mut command = Command::new("grep");
        command.args(["-n", "it's", "", "a b", "x\ny"]);
        assert_eq!(command.to_string(), r"grep -n 'it'\''s' '' 'a b' $'x\ny'");
    }

    #[test]
    fn secrets_are_not_printed() {
        let mut command = Command::new("login");
        command.arg("--password").secret_arg("hunter2").arg("me");
        assert_eq!(command.to_string(), "login --password *** me");
        assert_eq!(format!("{command:?}"), r#""login" "--password" *** "me""#);
    }
}
