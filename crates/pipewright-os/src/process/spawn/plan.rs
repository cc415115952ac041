//! The description of a child: plain data, the same on every platform.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::{Contain, EnvSnapshot, TreeSlot};
use crate::base::handle::Handle;
use crate::base::signal::Signal;
use crate::process::limits::TreeLimits;
use crate::process::pty::ChildTerminal;
use crate::process::terminal::Foreground;

#[cfg(unix)]
use super::PreExec;

/// The description of a child. All its data is borrowed: a plan is made, used and dropped.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// The program: a path if it has a separator, else a name to search for.
    pub program: &'a OsStr,
    /// The places to search for a name.
    pub search: Search<'a>,
    /// The name that the program gets as its first argument; `None` for the program's own.
    pub arg0: Option<&'a OsStr>,
    /// The arguments after the name.
    pub args: &'a [OsString],
    /// The environment.
    pub env: Env<'a>,
    /// The working directory; `None` for this process's own. A relative program path is resolved from it.
    pub current_dir: Option<&'a Path>,
    /// The handles for stdin, stdout and stderr.
    pub stdio: [ChildStdio<'a>; 3],
    /// The other handles that the child gets.
    pub inherit: Inherit<'a>,
    /// The containment of its tree, if any.
    pub contain: Option<Contain>,
    /// The limits of its tree, for [`Contain::limited_tree`].
    pub limits: Option<&'a TreeLimits>,
    /// The slot that holds its tree, instead. It takes the limits of [`Contain::limited_tree`].
    pub slot: Option<&'a TreeSlot>,
    /// The terminal on which a child with a group of its own becomes the foreground job.
    pub foreground: Option<&'a Foreground>,
    /// The terminal of its own that a child in a session of its own gets.
    pub terminal: Option<&'a ChildTerminal>,
    /// Options for Unix only.
    pub unix: &'a UnixOptions,
    /// Options for Windows only, if any is set.
    pub windows: Option<&'a WindowsOptions>,
}

/// The places to search for a program without a separator in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search<'a> {
    /// These directories, written as in `PATH`; an empty entry is the working directory.
    Path(&'a OsStr),
    /// The system's default if there is no `PATH` (`/bin:/usr/bin`).
    Default,
}

/// The child's environment.
#[derive(Debug, Clone, Copy)]
pub enum Env<'a> {
    /// This process's own, as in the snapshot.
    Inherit(&'a EnvSnapshot),
    /// Only these variables.
    Exactly(&'a [(OsString, OsString)]),
}

/// One of the child's standard handles.
#[derive(Debug, Clone, Copy)]
pub enum ChildStdio<'a> {
    /// This process's own handle, unchanged.
    Inherit,
    /// A copy of this handle.
    Handle(&'a Handle),
}

impl<'a> ChildStdio<'a> {
    /// Returns the terminal of the plan as a standard handle. Windows: `Inherit`; a child on a console of its own opens it
    /// itself.
    #[must_use]
    pub fn of_terminal(terminal: &'a ChildTerminal) -> ChildStdio<'a> {
        terminal.handle().map_or(ChildStdio::Inherit, ChildStdio::Handle)
    }
}

/// The handles beside stdio that the child gets.
#[derive(Debug, Clone, Copy)]
pub enum Inherit<'a> {
    /// Only these, each under the number beside it (Unix), or under its own.
    List(&'a [(Handle, Option<i32>)]),
    /// Every handle that is not marked otherwise: the rule of std and of `fork`. The listed handles are added.
    AllAnd(&'a [(Handle, Option<i32>)]),
}

/// The process group of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Group {
    /// The group of this process.
    #[default]
    Same,
    /// A group of its own, which it leads.
    Own,
    /// The existing group with that number.
    Join(i32),
    /// A session of its own, and with it a group of its own. It has no terminal but that of the plan.
    Session,
}

/// Options for Unix only, unless a field says otherwise. Elsewhere a start with any of them set fails.
#[derive(Debug, Clone, Default)]
pub struct UnixOptions {
    /// The process group. Windows has [`Group::Own`] and [`Group::Session`] too.
    pub group: Group,
    /// User and groups.
    pub identity: Credentials,
    /// The root directory.
    pub chroot: Option<PathBuf>,
    /// The file mode mask.
    pub umask: Option<u32>,
    /// The increment of the niceness: higher is less urgent.
    pub nice: Option<i32>,
    /// Resource limits.
    pub limits: Vec<ResourceLimit>,
    /// The signals that have their default action in the child, even if this process ignores them.
    pub default_signals: Vec<Signal>,
    /// True if SIGPIPE stays ignored in the child if this process ignores it, as Rust programs do. A tree has its own way.
    pub keeps_ignored_pipe: bool,
    /// If set, the child is killed when this process ends, however it ends. Windows has this too.
    ///
    /// Linux: `PR_SET_PDEATHSIG`. macOS: a guard, which is a `/bin/sh` that waits for the end of a pipe;
    /// see [`Contain::tree`].
    pub kill_on_parent_exit: Option<ParentExit>,
    /// True for the rules of std where those of this crate differ, on every system: the child has the
    /// signal mask of the thread that starts it, names of environment variables are passed unchecked, an
    /// empty program name is "not found", supplementary groups that may not be dropped are kept, and on
    /// Windows a relative program is resolved from this process's directory.
    pub std_rules: bool,
    /// Closures that the child runs before its program is loaded.
    #[cfg(unix)]
    pub pre_exec: PreExec,
}

/// The setting that a child ends with this process, from [`parent_exit`](super::parent_exit).
///
/// It refers to the code by a pointer, so that programs which never use it do not contain that code.
#[derive(Debug, Clone, Copy)]
pub struct ParentExit {
    #[cfg(target_os = "linux")]
    pub(crate) run: RunOnSpawnerThread,
    #[cfg(target_os = "macos")]
    pub(crate) start_guard: StartGuard,
    #[cfg(windows)]
    pub(crate) job: KillOnCloseJob,
}

/// A function that runs work on a thread that lives as long as this process.
#[cfg(target_os = "linux")]
pub(crate) type RunOnSpawnerThread = fn(work: &mut (dyn FnMut() + Send)) -> io::Result<()>;

/// A function that starts the guard of a child.
#[cfg(target_os = "macos")]
pub(crate) type StartGuard = fn(child: i32) -> io::Result<crate::process::child::guard::Guard>;

/// A function that returns the job whose processes end with this one; `true` asks for another one, if the
/// last one has processes.
#[cfg(windows)]
pub(crate) type KillOnCloseJob =
    fn(bool) -> io::Result<std::os::windows::io::BorrowedHandle<'static>>;

/// Options for Windows only. Elsewhere a start with any of them set fails.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowsOptions {
    /// The flags to add to those of `CreateProcessW`.
    pub creation_flags: u32,
    /// The way in which the first window of the program is shown (`wShowWindow`).
    pub show_window: Option<u16>,
    /// The indexes of the arguments, counted from 0, that go on the command line unchanged.
    pub raw_args: Vec<usize>,
    /// True to quote every other argument, even if it needs no quotes.
    pub force_quotes: bool,
    /// True to give the child's console no window.
    pub no_window: bool,
    /// True to start the child outside the job that this process is in.
    pub breakaway_from_job: bool,
    /// True to let processes of a contained tree leave it.
    pub allow_breakaway: bool,
}

/// User and groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user id.
    pub user: Option<u32>,
    /// The group id.
    pub group: Option<u32>,
    /// The supplementary groups. `None`: none if root changes the user, else unchanged (the rule of std).
    pub groups: Option<Vec<u32>>,
}

/// The treatment of supplementary groups that are not set.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnsetGroups {
    /// They stay.
    Kept,
    /// They are dropped.
    Dropped,
    /// They are dropped if that is permitted.
    DroppedIfPermitted,
}

/// A limit on one resource: the current one (`soft`) and the maximum to which the child may raise it
/// (`hard`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit {
    /// The resource.
    pub resource: Resource,
    /// The limit in force; `None` is no limit. The unit (bytes, seconds or a count) depends on the
    /// resource.
    pub soft: Option<u64>,
    /// The ceiling; `None` is no limit.
    pub hard: Option<u64>,
}

/// A resource that can be limited (getrlimit(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// Address space, in bytes.
    AddressSpace,
    /// Size of a core dump, in bytes.
    CoreDump,
    /// CPU time, in seconds.
    CpuTime,
    /// Data segment, in bytes.
    Data,
    /// Size of a file that is written, in bytes.
    FileSize,
    /// Locked memory, in bytes.
    LockedMemory,
    /// Open handles.
    OpenFiles,
    /// Processes of the user.
    Processes,
    /// Stack, in bytes.
    Stack,
}

impl UnixOptions {
    /// Returns the treatment of groups that are not set. Otherwise a child of root that only changes its
    /// user would keep root's groups.
    #[cfg(unix)]
    pub(crate) fn unset_groups(&self) -> UnsetGroups {
        match &self.identity {
            Credentials { user: Some(_), groups: None, .. } if self.std_rules => {
                UnsetGroups::DroppedIfPermitted
            }
            Credentials { user: Some(_), groups: None, .. }
                if rustix::process::geteuid().is_root() =>
            {
                UnsetGroups::Dropped
            }
            _ => UnsetGroups::Kept,
        }
    }

    /// Sets the process group; 0 is one of the child's own, which a session has anyway.
    pub fn set_process_group(&mut self, group: i32) {
        self.group = match (group, self.group) {
            (0, Group::Session) => Group::Session,
            (0, _) => Group::Own,
            (group, _) => Group::Join(group),
        };
    }
}

impl<'a> Inherit<'a> {
    /// Returns the listed handles.
    #[must_use]
    pub fn list(&self) -> &'a [(Handle, Option<i32>)] {
        match self {
            Inherit::List(list) | Inherit::AllAnd(list) => list,
        }
    }
}
