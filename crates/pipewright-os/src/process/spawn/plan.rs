//! What a child is to be: plain data, the same on every platform.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::{Contain, EnvSnapshot};
use crate::base::handle::Handle;
use crate::process::terminal::Foreground;

#[cfg(unix)]
use super::PreExec;

/// What a child is to be. Everything in it is borrowed: a plan is made, used and gone.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// The program: a path where it has a separator, else a name to search for.
    pub program: &'a OsStr,
    /// Where a name is searched for.
    pub search: Search<'a>,
    /// The name that the program is told it has; its own where `None`.
    pub arg0: Option<&'a OsStr>,
    /// The arguments after the name.
    pub args: &'a [OsString],
    /// The environment.
    pub env: Env<'a>,
    /// The working directory; this process's own where `None`. A relative program path is taken
    /// from there.
    pub current_dir: Option<&'a Path>,
    /// stdin, stdout, stderr.
    pub stdio: [ChildStdio<'a>; 3],
    /// Which other handles the child gets.
    pub inherit: Inherit<'a>,
    /// How its tree is held, if it is.
    pub contain: Option<Contain>,
    /// The terminal, for a child with a group of its own to have it in the foreground.
    pub foreground: Option<&'a Foreground>,
    /// What only Unix has.
    pub unix: &'a UnixOptions,
    /// What only Windows has, if anything of it is asked for.
    pub windows: Option<&'a WindowsOptions>,
}

/// Where a program without a separator in its name is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search<'a> {
    /// In these directories, written as in `PATH`; an empty entry is the working directory.
    Path(&'a OsStr),
    /// Where the system searches when there is no `PATH` (`/bin:/usr/bin`).
    Default,
}

/// The child's environment.
#[derive(Debug, Clone, Copy)]
pub enum Env<'a> {
    /// This process's own, as the snapshot has it.
    Inherit(&'a EnvSnapshot),
    /// These variables and no other.
    Exactly(&'a [(OsString, OsString)]),
}

/// One of the child's standard handles.
#[derive(Debug, Clone, Copy)]
pub enum ChildStdio<'a> {
    /// This process's own, as it is.
    Inherit,
    /// A copy of this handle.
    Handle(&'a Handle),
}

/// Which handles beside stdio the child gets.
#[derive(Debug, Clone, Copy)]
pub enum Inherit<'a> {
    /// These and no other, each under the number that stands beside it (Unix), or under its own.
    List(&'a [(Handle, Option<i32>)]),
    /// Whatever is not marked otherwise: the rule of std and of `fork`. The list comes on top.
    AllAnd(&'a [(Handle, Option<i32>)]),
}

/// The process group of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Group {
    /// That of this process.
    #[default]
    Same,
    /// One of its own, of which it is the leader.
    Own,
    /// The existing group of that number.
    Join(i32),
    /// A session of its own, without a terminal, and so also a group of its own.
    Session,
}

/// Options that only Unix has, but for the first and the last. Elsewhere anything but the default is refused at the start.
#[derive(Debug, Clone, Default)]
pub struct UnixOptions {
    /// The process group. Windows has [`Group::Own`] and [`Group::Session`] too.
    pub group: Group,
    /// User and groups.
    pub identity: Identity,
    /// The root directory.
    pub chroot: Option<PathBuf>,
    /// The file mode mask.
    pub umask: Option<u32>,
    /// What is added to the niceness: higher is less urgent.
    pub nice: Option<i32>,
    /// Resource limits.
    pub limits: Vec<ResourceLimit>,
    /// The child is killed when this process ends, however it ends. Windows has this too.
    ///
    /// Linux: `PR_SET_PDEATHSIG`. macOS: a guard, which is a `/bin/sh` that waits for the end of a
    /// pipe; see [`Contain::tree`].
    pub kill_on_parent_exit: Option<ParentExit>,
    /// The rules of std where those of this crate differ, on every system: the child has the signal
    /// mask of the thread that starts it, names of environment variables are passed on as they are,
    /// a program without a name is not found, supplementary groups that may not be dropped are kept, and
    /// on Windows a relative program is taken from this process's directory.
    pub std_rules: bool,
    /// Closures that the child runs before its program is loaded.
    #[cfg(unix)]
    pub pre_exec: PreExec,
}

/// That a child ends with this process, from [`parent_exit`](super::parent_exit).
///
/// It leads to the code by a pointer, so that programs which never ask for it do not contain it.
#[derive(Debug, Clone, Copy)]
pub struct ParentExit {
    pub(crate) run: RunForever,
}

/// Does the work on a thread that lasts as long as this process.
#[cfg(target_os = "linux")]
pub(crate) type RunForever = fn(work: &mut (dyn FnMut() + Send)) -> io::Result<()>;

/// Starts the guard of that child.
#[cfg(target_os = "macos")]
pub(crate) type RunForever = fn(child: i32) -> io::Result<crate::process::child::guard::Guard>;

/// The job whose processes end with this one; `true`: another, if the last one has processes.
#[cfg(windows)]
pub(crate) type RunForever = fn(bool) -> io::Result<std::os::windows::io::BorrowedHandle<'static>>;

/// Options that only Windows has. Elsewhere anything but the default is refused at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowsOptions {
    /// What is added to the flags of `CreateProcessW`.
    pub creation_flags: u32,
    /// How the first window of the program is shown (`wShowWindow`).
    pub show_window: Option<u16>,
    /// Which of the arguments, counted from 0, are put on the command line as they are.
    pub raw_args: Vec<usize>,
    /// Every other argument is quoted, whether it needs to be or not.
    pub force_quotes: bool,
    /// The child's console has no window.
    pub no_window: bool,
    /// The child is outside of the job that this process is in.
    pub breaks_away: bool,
    /// Processes of a tree that is held may leave it.
    pub lets_break_away: bool,
}

/// User and groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The user id.
    pub user: Option<u32>,
    /// The group id.
    pub group: Option<u32>,
    /// The supplementary groups. `None`: none where root changes the user, else as they are (the
    /// rule of std).
    pub groups: Option<Vec<u32>>,
}

/// What becomes of the supplementary groups that nobody has set.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnsetGroups {
    /// They stay.
    Kept,
    /// They are dropped.
    Dropped,
    /// They are dropped where that is permitted.
    DroppedIfPermitted,
}

/// A limit on one resource: what the child has now (`soft`) and how far it may raise it (`hard`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit {
    /// The resource.
    pub resource: Resource,
    /// The limit in force; `None` is no limit. Bytes, seconds or a number, as the resource has it.
    pub soft: Option<u64>,
    /// The ceiling; `None` is no limit.
    pub hard: Option<u64>,
}

/// What can be limited (getrlimit(2)).
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
    /// Returns what becomes of groups that are not set: a child of root that only changes its user would
    /// keep root's.
    #[cfg(unix)]
    pub(crate) fn unset_groups(&self) -> UnsetGroups {
        match &self.identity {
            Identity { user: Some(_), groups: None, .. } if self.std_rules => {
                UnsetGroups::DroppedIfPermitted
            }
            Identity { user: Some(_), groups: None, .. }
                if rustix::process::geteuid().is_root() =>
            {
                UnsetGroups::Dropped
            }
            _ => UnsetGroups::Kept,
        }
    }

    /// Sets the group of that number; 0 is one of the child's own, which a session comes with.
    pub fn set_process_group(&mut self, group: i32) {
        self.group = match (group, self.group) {
            (0, Group::Session) => Group::Session,
            (0, _) => Group::Own,
            (group, _) => Group::Join(group),
        };
    }

    /// The setter of the first option that is not at its default and that only Unix has.
    #[cfg(windows)]
    pub(crate) fn asked_for(&self) -> Option<&'static str> {
        let Identity { user, group, groups } = &self.identity;
        let asked = [
            ("process_group", matches!(self.group, Group::Join(_))),
            ("uid", user.is_some()),
            ("gid", group.is_some()),
            ("groups", groups.is_some()),
            ("chroot", self.chroot.is_some()),
            ("umask", self.umask.is_some()),
            ("nice", self.nice.is_some()),
            ("rlimit", !self.limits.is_empty()),
        ];
        first(&asked)
    }
}

impl WindowsOptions {
    /// The setter of the first option that is not at its default.
    #[cfg(unix)]
    pub(crate) fn asked_for(&self) -> Option<&'static str> {
        let asked = [
            ("creation_flags", self.creation_flags != 0),
            ("show_window", self.show_window.is_some()),
            ("raw_arg", !self.raw_args.is_empty()),
            ("force_quotes", self.force_quotes),
            ("no_window", self.no_window),
            ("breakaway_from_job", self.breaks_away),
            ("allow_breakaway", self.lets_break_away),
        ];
        first(&asked)
    }
}

fn first(asked: &[(&'static str, bool)]) -> Option<&'static str> {
    asked.iter().find(|(_, is_asked)| *is_asked).map(|(name, _)| *name)
}

impl<'a> Inherit<'a> {
    /// The listed handles.
    #[must_use]
    pub fn list(&self) -> &'a [(Handle, Option<i32>)] {
        match self {
            Inherit::List(list) | Inherit::AllAnd(list) => list,
        }
    }
}
