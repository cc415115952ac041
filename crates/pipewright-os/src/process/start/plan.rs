//! The plan of a start: its options, and the ways to start a child that refuse one.
//!
//! [`unix_list`] and [`windows_list`] name every field of a plan, so that a new one does not compile before it has an
//! option, and each option says how every way answers it. The tests start a child with each.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[cfg(unix)]
use super::PreExec;
use super::{BadInput, Contain, EnvSnapshot, SpawnError, TreeSlot};
use crate::base::handle::Handle;
use crate::base::signal::Signal;
use crate::process::limits::TreeLimits;
use crate::process::pty::ChildTerminal;
use crate::process::terminal::Foreground;

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
    /// Returns the terminal of the plan as a standard handle. Windows: `Inherit`; a child on a console of its own opens
    /// it itself.
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
    /// True if SIGPIPE stays ignored in the child if this process ignores it, as Rust programs do. A tree has its own
    /// way.
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
    /// The limit of the wait until the child has executed its program. Linux; elsewhere a start waits without one.
    pub start_limit: Option<StartLimit>,
    /// Closures that the child runs before its program is loaded.
    #[cfg(unix)]
    pub pre_exec: PreExec,
}

/// The limit of the wait for a file or a directory that may never answer. Then the child is killed, before it runs any
/// of its program, and the start fails with `TimedOut`, without an error number.
#[derive(Debug, Clone)]
pub enum StartLimit {
    /// A time since the child was created.
    Time(Duration),
    /// The moment at which this becomes true.
    Flag(Arc<AtomicBool>),
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
pub(crate) type StartGuard = fn(child: i32) -> io::Result<crate::process::child::macos::Guard>;

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

#[cfg(unix)]
impl Resource {
    /// Returns the number that the system has for it.
    pub(super) fn number(self) -> libc::c_uint {
        // They are c_uint in glibc, c_int in musl and on macOS.
        let number = match self {
            Resource::AddressSpace => libc::RLIMIT_AS,
            Resource::CoreDump => libc::RLIMIT_CORE,
            Resource::CpuTime => libc::RLIMIT_CPU,
            Resource::Data => libc::RLIMIT_DATA,
            Resource::FileSize => libc::RLIMIT_FSIZE,
            Resource::LockedMemory => libc::RLIMIT_MEMLOCK,
            Resource::OpenFiles => libc::RLIMIT_NOFILE,
            Resource::Processes => libc::RLIMIT_NPROC,
            Resource::Stack => libc::RLIMIT_STACK,
        };
        number as libc::c_uint
    }
}

impl UnixOptions {
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

/// An option that not every start has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartOption {
    Arg0,
    CurrentDir,
    Inherit,
    InheritFdAs,
    InheritAll,
    Contain,
    Limits,
    Foreground,
    Terminal,
    OwnGroup,
    JoinGroup,
    Session,
    Uid,
    Gid,
    Groups,
    Chroot,
    Umask,
    Nice,
    Rlimit,
    DefaultSignal,
    KillOnParentExit,
    StdRules,
    PreExec,
    CreationFlags,
    ShowWindow,
    RawArg,
    ForceQuotes,
    NoWindow,
    BreakawayFromJob,
    AllowBreakaway,
}

/// A way to start a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(all(test, target_os = "linux")),
    expect(dead_code, reason = "each system asks for its own")
)]
pub(super) enum Way {
    Linux,
    LinuxSlot,
    Macos,
    Windows,
    WindowsSlot,
}

/// The reason why a way refuses an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The option is for that system only.
    IsFor(&'static str),
    /// A slot does not have it.
    NotInSlot,
}

/// An option, the name of its setter, and true if a plan has it.
type Entry = (StartOption, &'static str, bool);

impl StartOption {
    /// Returns the reason why a way refuses this option; `None` if it does what the option says.
    pub(super) fn refusal(self, way: Way) -> Option<Refusal> {
        use StartOption as It;
        let is_windows = matches!(way, Way::Windows | Way::WindowsSlot);
        let is_slot = matches!(way, Way::LinuxSlot | Way::WindowsSlot);
        let of_unix = is_windows.then_some(Refusal::IsFor("Unix"));
        let not_in_slot = is_slot.then_some(Refusal::NotInSlot);
        match self {
            It::CurrentDir
            | It::Inherit
            | It::Limits
            | It::Terminal
            | It::OwnGroup
            | It::Session
            | It::KillOnParentExit => None,
            It::Arg0
            | It::InheritFdAs
            | It::JoinGroup
            | It::Umask
            | It::Nice
            | It::Rlimit
            | It::DefaultSignal => of_unix,
            // The memory of the supervisor, which is another user's, must not be shared with such a process.
            It::Uid | It::Gid | It::Groups | It::Chroot | It::PreExec => of_unix.or(not_in_slot),
            It::Contain | It::Foreground => not_in_slot,
            It::InheritAll | It::StdRules => not_in_slot.filter(|_| !is_windows),
            It::CreationFlags
            | It::ShowWindow
            | It::RawArg
            | It::ForceQuotes
            | It::NoWindow
            | It::BreakawayFromJob
            | It::AllowBreakaway => (!is_windows).then_some(Refusal::IsFor("Windows")),
        }
    }
}

/// Refuses the first option of a plan that this way does not have.
///
/// # Errors
/// The option is named as its setter.
pub(super) fn check_options(plan: &Plan<'_>, way: Way) -> Result<(), SpawnError> {
    let of_windows = plan.windows.map(windows_list).into_iter().flatten();
    for (option, setter, is_set) in unix_list(plan).into_iter().chain(of_windows) {
        match option.refusal(way).filter(|_| is_set) {
            None => {}
            Some(Refusal::IsFor(system)) => return Err(SpawnError::unsupported(setter, system)),
            Some(Refusal::NotInSlot) => return Err(SpawnError::bad(BadInput::NotInSlot(setter))),
        }
    }
    Ok(())
}

/// Refuses the first option of a plan that only Windows has: all that Linux refuses without a slot, in less code.
///
/// # Errors
/// The option is named as its setter.
#[cfg(unix)]
pub(super) fn check_windows_options(plan: &Plan<'_>) -> Result<(), SpawnError> {
    let Some(options) = plan.windows else { return Ok(()) };
    match windows_list(options).iter().find(|(.., is_set)| *is_set) {
        Some((_, setter, _)) => Err(SpawnError::unsupported(setter, "Windows")),
        None => Ok(()),
    }
}

/// Returns all options of a plan except those that only Windows has.
fn unix_list(plan: &Plan<'_>) -> [Entry; 23] {
    use StartOption as It;
    // Every start has those without a name here. The slot is the way itself.
    let Plan {
        program: _,
        search: _,
        arg0,
        args: _,
        env: _,
        current_dir,
        stdio: _,
        inherit,
        contain,
        limits,
        slot,
        foreground,
        terminal,
        unix,
        windows: _,
    } = *plan;
    let UnixOptions {
        group,
        identity: Credentials { user, group: gid, groups },
        chroot,
        umask,
        nice,
        limits: resource_limits,
        default_signals,
        // A part of the set of signals, which every start has.
        keeps_ignored_pipe: _,
        kill_on_parent_exit,
        std_rules,
        // A part of the wait for the start.
        start_limit: _,
        #[cfg(unix)]
        pre_exec,
    } = unix;
    #[cfg(unix)]
    let has_closures = !pre_exec.is_empty();
    #[cfg(not(unix))]
    let has_closures = false;
    let list = inherit.list();
    // A slot contains its command, with the limits that this may say.
    let contains = contain.is_some_and(|contain| slot.is_none() || contain.slot_limits.is_none());
    [
        (It::Arg0, "arg0", arg0.is_some()),
        (It::CurrentDir, "current_dir", current_dir.is_some()),
        (It::Inherit, "inherit", !list.is_empty()),
        (It::InheritFdAs, "inherit_fd_as", list.iter().any(|(_, number)| number.is_some())),
        (It::InheritAll, "inherit_all", matches!(inherit, Inherit::AllAnd(_))),
        (It::Contain, "contain", contains),
        (It::Limits, "limits", limits.is_some()),
        (It::Foreground, "foreground", foreground.is_some()),
        (It::Terminal, "pty", terminal.is_some()),
        (It::OwnGroup, "own_group", *group == Group::Own),
        (It::JoinGroup, "process_group", matches!(group, Group::Join(_))),
        (It::Session, "own_session", *group == Group::Session),
        (It::Uid, "uid", user.is_some()),
        (It::Gid, "gid", gid.is_some()),
        (It::Groups, "groups", groups.is_some()),
        (It::Chroot, "chroot", chroot.is_some()),
        (It::Umask, "umask", umask.is_some()),
        (It::Nice, "nice", nice.is_some()),
        (It::Rlimit, "rlimit", !resource_limits.is_empty()),
        (It::DefaultSignal, "default_signal", !default_signals.is_empty()),
        (It::KillOnParentExit, "kill_on_parent_exit", kill_on_parent_exit.is_some()),
        (It::StdRules, "std_rules", *std_rules),
        (It::PreExec, "pre_exec", has_closures),
    ]
}

/// Returns the options that only Windows has.
fn windows_list(options: &WindowsOptions) -> [Entry; 7] {
    use StartOption as It;
    let WindowsOptions {
        creation_flags,
        show_window,
        raw_args,
        force_quotes,
        no_window,
        breakaway_from_job,
        allow_breakaway,
    } = options;
    [
        (It::CreationFlags, "creation_flags", *creation_flags != 0),
        (It::ShowWindow, "show_window", show_window.is_some()),
        (It::RawArg, "raw_arg", !raw_args.is_empty()),
        (It::ForceQuotes, "force_quotes", *force_quotes),
        (It::NoWindow, "no_window", *no_window),
        (It::BreakawayFromJob, "breakaway_from_job", *breakaway_from_job),
        (It::AllowBreakaway, "allow_breakaway", *allow_breakaway),
    ]
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::base::signal::empty_set;
    use crate::base::skipped::{Need, skipped};
    use crate::process::child::ChildHandle;
    use crate::process::pty::{self, PtySize};
    use crate::process::start::{Step, begin, parent_exit, spawn};

    /// The values of a plan that runs a shell.
    #[derive(Default)]
    struct Values {
        unix: UnixOptions,
        windows: Option<WindowsOptions>,
        args: Vec<OsString>,
        arg0: Option<OsString>,
        current_dir: Option<&'static Path>,
        list: Vec<(Handle, Option<i32>)>,
        inherits_all: bool,
        contain: Option<Contain>,
        limits: Option<TreeLimits>,
        foreground: Option<Foreground>,
        terminal: Option<(pty::Pty, pty::ChildTerminal)>,
    }

    impl Values {
        fn plan<'a>(
            &'a self,
            env: &'a EnvSnapshot,
            stdout: &'a Handle,
            slot: Option<&'a TreeSlot>,
        ) -> Plan<'a> {
            let list = &self.list;
            Plan {
                program: "sh".as_ref(),
                search: Search::Default,
                arg0: self.arg0.as_deref(),
                args: &self.args,
                env: Env::Inherit(env),
                current_dir: self.current_dir,
                stdio: [ChildStdio::Inherit, ChildStdio::Handle(stdout), ChildStdio::Inherit],
                inherit: match self.inherits_all {
                    true => Inherit::AllAnd(list),
                    false => Inherit::List(list),
                },
                contain: self.contain,
                limits: self.limits.as_ref(),
                slot,
                foreground: self.foreground.as_ref(),
                terminal: self.terminal.as_ref().map(|(_, terminal)| terminal),
                unix: &self.unix,
                windows: self.windows.as_ref(),
            }
        }
    }

    /// A file in memory.
    fn memory() -> Handle {
        Handle::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap())
    }

    /// Returns the text of such a file.
    fn text(file: Handle) -> String {
        let mut bytes = [0; 200];
        let count = File::from(file).read_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap().trim_end().to_owned()
    }

    /// A process that leads a group.
    struct Leader(ChildHandle);

    impl Leader {
        fn start() -> Leader {
            let values = Values {
                unix: UnixOptions { group: Group::Own, ..UnixOptions::default() },
                args: vec!["-c".into(), "exec sleep 1000".into()],
                ..Values::default()
            };
            Leader(spawn(&values.plan(&EnvSnapshot::take(), &memory(), None)).unwrap())
        }
    }

    impl Drop for Leader {
        fn drop(&mut self) {
            self.0.signal(Signal::KILL).unwrap();
            self.0.wait().unwrap();
        }
    }

    /// Sets the option. Returns a script and the output by which a shell shows that it has the option; an empty script
    /// where another suite shows it.
    fn set(option: StartOption, values: &mut Values, leader: &Leader) -> (String, &'static str) {
        use StartOption as It;
        let unix = &mut values.unix;
        let mut windows = WindowsOptions::default();
        let (script, output) = match option {
            It::Arg0 => {
                values.arg0 = Some("other".into());
                ("echo $0", "other")
            }
            It::CurrentDir => {
                values.current_dir = Some(Path::new("/usr"));
                ("pwd", "/usr")
            }
            It::Inherit => {
                values.list.push((memory(), None));
                ("readlink /proc/self/fd/* | grep -c memfd", "1")
            }
            It::InheritFdAs => {
                values.list.push((memory(), Some(77)));
                ("readlink /proc/self/fd/77", "/memfd:test (deleted)")
            }
            It::InheritAll => {
                values.inherits_all = true;
                values.list.push((memory(), Some(78)));
                ("readlink /proc/self/fd/78", "/memfd:test (deleted)")
            }
            It::Contain => {
                values.contain = Some(Contain::tree(false));
                ("", "")
            }
            It::Limits => {
                values.contain = Some(Contain::limited_tree(false));
                values.limits = Some(TreeLimits { best_effort: true, ..TreeLimits::default() });
                ("", "")
            }
            It::Foreground => {
                unix.group = Group::Own;
                // No terminal, which is ignored as one that has hung up.
                values.foreground = Some(Foreground { terminal: memory() });
                ("", "")
            }
            It::Terminal => {
                unix.group = Group::Session;
                values.terminal = Some(pty::open(PtySize::default()).unwrap());
                (
                    "read -r _ _ _ _ _ s t _ < /proc/self/stat; [ $s$t = ${$}0 ] || echo $((s - $$))",
                    "0",
                )
            }
            It::OwnGroup => {
                unix.group = Group::Own;
                ("read -r _ _ _ _ group _ < /proc/self/stat; echo $((group - $$))", "0")
            }
            It::JoinGroup => {
                unix.group = Group::Join(leader.0.pid() as i32);
                ("read -r _ _ _ _ group _ < /proc/self/stat; echo $((group - LEADER))", "0")
            }
            It::Session => {
                unix.group = Group::Session;
                ("read -r _ _ _ _ _ session _ < /proc/self/stat; echo $((session - $$))", "0")
            }
            It::Uid => {
                unix.identity.user = Some(12345);
                ("id -u", "12345")
            }
            It::Gid => {
                unix.identity.group = Some(12345);
                ("id -g", "12345")
            }
            It::Groups => {
                unix.identity.groups = Some(vec![12345]);
                ("set -- $(grep Groups /proc/self/status); echo $2", "12345")
            }
            It::Chroot => {
                unix.chroot = Some("/".into());
                ("pwd", "/")
            }
            It::Umask => {
                unix.umask = Some(0o27);
                ("umask", "0027")
            }
            It::Nice => {
                unix.nice = Some(3);
                ("echo $(($(nice) - NICE))", "3")
            }
            It::Rlimit => {
                let (resource, limit) = (Resource::OpenFiles, Some(99));
                unix.limits.push(ResourceLimit { resource, soft: limit, hard: limit });
                ("ulimit -n", "99")
            }
            It::DefaultSignal => {
                unix.default_signals.push(Signal::from_number(libc::SIGURG).unwrap());
                ("set -- $(grep SigIgn /proc/self/status); echo $((0x$2 >> 22 & 1))", "0")
            }
            It::KillOnParentExit => {
                unix.kill_on_parent_exit = Some(parent_exit());
                ("", "")
            }
            It::StdRules => {
                unix.std_rules = true;
                ("set -- $(grep SigBlk /proc/self/status); echo $((0x$2 >> 11 & 1))", "1")
            }
            It::PreExec => {
                let closure = || {
                    // SAFETY: a number.
                    unsafe { libc::umask(0o12) };
                    Ok(())
                };
                // SAFETY: a system call.
                unsafe { unix.pre_exec.push(Box::new(closure)) };
                ("umask", "0012")
            }
            It::CreationFlags => {
                windows.creation_flags = 1;
                ("", "")
            }
            It::ShowWindow => {
                windows.show_window = Some(0);
                ("", "")
            }
            It::RawArg => {
                windows.raw_args.push(0);
                ("", "")
            }
            It::ForceQuotes => {
                windows.force_quotes = true;
                ("", "")
            }
            It::NoWindow => {
                windows.no_window = true;
                ("", "")
            }
            It::BreakawayFromJob => {
                windows.breakaway_from_job = true;
                ("", "")
            }
            It::AllowBreakaway => {
                windows.allow_breakaway = true;
                ("", "")
            }
        };
        values.windows = (windows != WindowsOptions::default()).then_some(windows);
        let nice = rustix::process::getpriority_process(None).unwrap().to_string();
        let script = script.replace("NICE", &nice).replace("LEADER", &leader.0.pid().to_string());
        (script, output)
    }

    /// Returns each option and the name of its setter.
    fn all() -> Vec<(StartOption, &'static str)> {
        let (env, stdout, values) = (EnvSnapshot::take(), memory(), Values::default());
        let plan = values.plan(&env, &stdout, None);
        let unix = unix_list(&plan).into_iter();
        let entries = unix.chain(windows_list(&WindowsOptions::default()));
        let checked = entries.map(|(option, setter, is_set)| {
            assert!(!is_set, "{setter}");
            (option, setter)
        });
        checked.collect()
    }

    #[test]
    fn every_option_has_one_name_and_an_answer_of_each_way() {
        let all = all();
        for (index, (option, setter)) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|it| it.0 != *option && it.1 != *setter), "{setter}");
            // A slot has no more than its system.
            for (way, slot) in [(Way::Linux, Way::LinuxSlot), (Way::Windows, Way::WindowsSlot)] {
                let refusal = option.refusal(way);
                assert!(refusal.is_none() || option.refusal(slot) == refusal, "{setter}");
            }
            let has = |way| option.refusal(way).is_none();
            assert!(has(Way::Linux) || has(Way::Windows), "{setter}");
            assert_eq!(option.refusal(Way::Linux), option.refusal(Way::Macos), "{setter}");
        }
    }

    #[test]
    fn every_option_is_done_or_refused_by_name_by_this_process_and_in_a_slot() {
        // To be ignored is its default too, so other tests do not notice.
        // SAFETY: not a function.
        unsafe { libc::signal(libc::SIGURG, libc::SIG_IGN) };
        let leader = Leader::start();
        for (option, setter) in all() {
            answers(option, setter, (Way::Linux, None), &leader);
        }
        let Ok(slot) = TreeSlot::new(drop) else {
            return skipped(Need::Supervisor, "there are no slots");
        };
        for (option, setter) in all() {
            answers(option, setter, (Way::LinuxSlot, Some(&slot)), &leader);
        }
    }

    fn answers(
        option: StartOption,
        setter: &str,
        (way, slot): (Way, Option<&TreeSlot>),
        leader: &Leader,
    ) {
        let mut values = Values::default();
        let (script, expected) = set(option, &mut values, leader);
        values.args = vec!["-c".into(), script.into()];
        let (env, stdout) = (EnvSnapshot::take(), memory());
        let plan = values.plan(&env, &stdout, slot);
        assert!(
            values.windows.is_some()
                || unix_list(&plan).iter().any(|entry| entry.0 == option && entry.2),
            "{setter} is not set"
        );
        let start = || {
            let mut set = empty_set();
            // SAFETY: a live set and a signal.
            unsafe { libc::sigaddset(&raw mut set, libc::SIGUSR2) };
            // SAFETY: live sets. The thread ends with the start.
            unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
            begin(&plan).and_then(|begun| begun.finish(&plan))
        };
        let started = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
        match (option.refusal(way), started) {
            (None, Ok(child)) => {
                let ended = child.wait().unwrap();
                assert_eq!(text(stdout), expected, "{setter}, {way:?}: {ended:?}");
                drop(child);
                let (without, stdout) = (Values::default(), memory());
                let plan = without.plan(&env, &stdout, slot);
                let plan = Plan { args: &values.args, ..plan };
                let child = begin(&plan).and_then(|begun| begun.finish(&plan)).unwrap();
                child.wait().unwrap();
                let is_shown = expected.is_empty() || text(stdout) != expected;
                assert!(is_shown, "{setter}, {way:?}: the shell says the same without it");
            }
            (None, Err(error))
                if option == StartOption::Limits
                    && error.source.kind() == std::io::ErrorKind::Unsupported =>
            {
                skipped(Need::TreeLimits, error);
            }
            (None, Err(error)) => {
                // A right that only root has.
                let is_root = rustix::process::geteuid().is_root();
                let is_denied = error.source.raw_os_error() == Some(libc::EPERM);
                assert!(is_denied && !is_root, "{setter}, {way:?}: {error}");
            }
            (Some(_), Ok(_)) => panic!("{setter} is neither done nor refused: {way:?}"),
            (Some(refusal), Err(error)) => {
                let named = format!("`{setter}`");
                assert!(error.source.to_string().contains(&named), "{setter}, {way:?}: {error}");
                let is_typed = match refusal {
                    Refusal::NotInSlot => {
                        matches!(error.step, Step::Check(BadInput::NotInSlot(it)) if it == setter)
                    }
                    Refusal::IsFor(_) => error.source.kind() == std::io::ErrorKind::Unsupported,
                };
                assert!(is_typed, "{setter}, {way:?}: {error:?}");
            }
        }
    }
}
