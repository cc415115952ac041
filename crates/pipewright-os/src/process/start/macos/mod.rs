//! Starts by `posix_spawn(2)`, and by `fork(2)` before it for options that it lacks.
//!
//! `posix_spawn` copies nothing of this process, and the kernel closes the handles that are not listed. It
//! has no option for a user, a root directory, a umask, a niceness, a limit or a terminal. A child with one of these is
//! forked, which costs as much as a fork of this process. It then executes its program by the same call,
//! with the same objects (`POSIX_SPAWN_SETEXEC`). So the two ways differ only in those options.

mod forked;

use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;
use std::{io, ptr, thread};

use super::layout::Layout;
use super::{
    BadInput, Credentials, Group, ParentExit, Plan, SpawnError, Step, TreeSlot, UnixOptions,
};
use crate::base::signal::{AllBlocked, Signal, current_mask};
use crate::process::child::macos::{Guard, GuardTarget};
use crate::process::child::{ChildHandle, Containment, macos as exit};
use crate::process::libproc::{ProcessInfo, is_taken};
use crate::process::limits::LimitUnavailable;
use crate::process::status::wait4;
use forked::HandleMoves;

pub(super) use super::layout::{is_path, search_dirs};
pub(super) use forked::{FORK, Fork};

pub(super) fn spawn(plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
    match plan.contain {
        Some(contain) => (contain.start)(plan, contain.ends_with_parent),
        None => start(plan, plan.unix.kill_on_parent_exit.map(for_child)),
    }
}

/// Starts a contained child. macOS has only a process group. With `ends_with_parent` the group has a guard,
/// which kills it.
pub(crate) fn start_contained(
    plan: &Plan<'_>,
    ends_with_parent: bool,
) -> Result<ChildHandle, SpawnError> {
    let group = match plan.unix.group {
        Group::Same | Group::Own => Group::Own,
        _ if ends_with_parent => {
            // The guard cannot enter another session, and must not kill a group of unrelated processes.
            let message = "the tree can end with this process only as a process group of its own";
            let error = io::Error::new(io::ErrorKind::Unsupported, message);
            return Err(SpawnError::new(Step::Contain, error));
        }
        chosen => chosen,
    };
    let options = UnixOptions { group, ..plan.unix.clone() };
    let guard_start = match options.kill_on_parent_exit {
        _ if ends_with_parent => Some(GuardStart { step: Step::Contain, begin: guard_group }),
        requested => requested.map(for_child),
    };
    start(&Plan { unix: &options, ..*plan }, guard_start)
}

/// True: a group holds a tree, and its guard ends it with this process.
pub(super) const GUARDS_GROUPS: bool = true;

/// None: a start is over once its processes have executed their programs.
pub(super) fn leaving() -> Vec<i32> {
    Vec::new()
}

/// Fails, unless the limits may be left out: nothing here holds the limits of a tree.
pub(crate) fn start_limited(
    plan: &Plan<'_>,
    ends_with_parent: bool,
) -> Result<ChildHandle, SpawnError> {
    let limits = plan.limits.copied().unwrap_or_default();
    if let Some(mistake) = limits.mistake() {
        return Err(SpawnError::bad(BadInput::TreeLimits(mistake)));
    }
    match limits.kinds().next() {
        Some(kind) if !limits.best_effort => {
            let reason = LimitUnavailable::new(kind, "macOS has no limits on a process tree");
            let error = io::Error::new(io::ErrorKind::Unsupported, reason);
            Err(SpawnError::new(Step::TreeLimits, error))
        }
        _ => start_contained(plan, ends_with_parent),
    }
}

/// The limits of a slot's tree, which do not exist here.
pub(crate) type SlotLimits = Infallible;

pub(crate) const SLOT_LIMITS: Option<SlotLimits> = None;

/// Fails: nothing here holds one tree after another. A guard belongs to one group.
pub(super) fn new_slot(_: fn(ChildHandle)) -> Result<TreeSlot, SpawnError> {
    let message = "macOS has nothing that holds one tree after another";
    let error = io::Error::new(io::ErrorKind::Unsupported, message);
    Err(SpawnError::new(Step::Contain, error))
}

/// The guard that a child gets. By a pointer, so that programs which never use it do not contain it.
#[derive(Debug, Clone, Copy)]
struct GuardStart {
    step: Step,
    begin: fn(child: i32) -> io::Result<Guard>,
}

fn for_child(requested: ParentExit) -> GuardStart {
    GuardStart { step: Step::ParentDeath, begin: requested.start_guard }
}

fn guard_group(child: i32) -> io::Result<Guard> {
    start_guard(child, GuardTarget::Group)
}

fn guard_child(child: i32) -> io::Result<Guard> {
    start_guard(child, GuardTarget::Child)
}

pub(super) fn parent_exit() -> ParentExit {
    ParentExit { start_guard: guard_child }
}

pub(super) fn exec(plan: &Plan<'_>) -> Result<Infallible, SpawnError> {
    let layout = Layout::new(plan)?;
    let moves = HandleMoves::new(plan)?;
    let actions = moves.actions(!plan.unix.pre_exec.is_empty())?;
    let attributes = attributes(plan, &moves, StartMode::Replace, false)?;
    let setup = forked::ChildSetup::new(plan, &layout, &moves, &actions, &attributes);
    let mut locked = plan.unix.pre_exec.lock();
    let closures = locked.as_mut().map_or(&mut [][..], |locked| &mut locked.closures);
    // If the exec fails, this process continues with the signal mask that it had.
    let _mask = AllBlocked::new();
    // SAFETY: the setup borrows live data, and this thread is the one that becomes the program.
    let (step, errno) = unsafe { forked::become_program(&setup, closures) };
    Err(SpawnError::new(step, io::Error::from_raw_os_error(errno)))
}

fn start(plan: &Plan<'_>, guard_start: Option<GuardStart>) -> Result<ChildHandle, SpawnError> {
    let layout = Layout::new(plan)?;
    let moves = HandleMoves::new(plan)?;
    let terminal = plan.foreground.filter(|_| plan.unix.group == Group::Own);
    // Steps that need the child's number are done before the program runs.
    let waits = guard_start.is_some() || terminal.is_some();
    // A session takes a terminal by a call of its own.
    let pid = match needs_fork(plan.unix) || plan.terminal.is_some() {
        false => start_by_posix_spawn(plan, &layout, &moves, waits)?,
        true => {
            let actions = moves.actions(!plan.unix.pre_exec.is_empty())?;
            let attributes = attributes(plan, &moves, StartMode::Replace, waits)?;
            forked::start(&forked::ChildSetup::new(plan, &layout, &moves, &actions, &attributes))?
        }
    };
    let mut exit = exit::ChildHandle::new(pid);
    if matches!(plan.unix.group, Group::Own | Group::Session) {
        exit.containment = Containment::Group;
    }
    let holds_tree = plan.contain.is_some() && exit.containment == Containment::Group;
    if let Some(terminal) = terminal {
        terminal.give_to(pid as u32);
    }
    let held = |exit: exit::ChildHandle| if holds_tree { exit.with_held_group() } else { exit };
    let Some(guard_start) = guard_start else {
        return Ok(resumed(ChildHandle(held(exit)), waits));
    };
    match (guard_start.begin)(pid) {
        Ok(guard) => Ok(resumed(ChildHandle(held(exit.with_guard(guard))), waits)),
        Err(error) => {
            let exit = ChildHandle(exit);
            // It has run nothing yet, and is a child of this process: neither call can fail.
            let _ = exit.signal(Signal::KILL);
            let _ = exit.wait();
            Err(SpawnError::new(guard_start.step, error))
        }
    }
}

/// Waits until the kernel has suspended a child that was started so. For a child that was forked, exec closes the pipe
/// of the report first: a signal before the suspension would be lost, and the child suspended for ever.
///
/// No event reports the suspension: its parent is not woken for it (XNU, exec_mach_imgact).
fn wait_until_suspended(pid: u32) {
    const PAUSE: Duration = Duration::from_micros(50);
    /// 10 s: more than an exec takes. The signal is sent in any case.
    const MOST_LOOKS: usize = 200_000;
    for _ in 0..MOST_LOOKS {
        match ProcessInfo::of(pid) {
            Some(state) if state.is_stopped_or_ended() => return,
            None if !is_taken(pid) => return,
            // A sandbox may refuse the look.
            Some(_) | None => thread::park_timeout(PAUSE),
        }
    }
}

/// Resumes a child that was started suspended.
fn resumed(exit: ChildHandle, waits: bool) -> ChildHandle {
    if waits {
        wait_until_suspended(exit.pid());
        // Ignored: it cannot fail. The child is unreaped, and this process is root's or may signal every
        // process with its real user (kill(2)), which a set-user-ID program keeps until it runs.
        let _ = exit.signal(Signal::CONT);
    }
    exit
}

fn needs_fork(options: &UnixOptions) -> bool {
    let UnixOptions { identity, chroot, umask, nice, limits, pre_exec, .. } = options;
    let changes_rights = *identity != Credentials::default() || chroot.is_some();
    let changes_limits = umask.is_some() || nice.is_some() || !limits.is_empty();
    changes_rights || changes_limits || !pre_exec.is_empty()
}

/// The way in which a process gets its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartMode {
    /// It is created for the program.
    Create,
    /// It exists, has its group and its directory, and executes the program.
    Replace,
}

/// Returns the signal mask of the program. If there are closures, it is set before they run, because they
/// may change it.
fn mask(plan: &Plan<'_>) -> libc::sigset_t {
    if plan.unix.std_rules { current_mask() } else { signals(&[]) }
}

fn attributes(
    plan: &Plan<'_>,
    moves: &HandleMoves,
    mode: StartMode,
    suspended: bool,
) -> Result<SpawnAttributes, SpawnError> {
    let make = || {
        let mut attributes = SpawnAttributes::with_defaults(plan.unix)?;
        if plan.unix.pre_exec.is_empty() {
            attributes.block(&mask(plan))?;
        }
        if moves.closes_others() {
            attributes.close_others()?;
        }
        if suspended {
            attributes.start_suspended()?;
        }
        match (mode, plan.unix.group) {
            (StartMode::Replace, _) => attributes.replace_this_process()?,
            (StartMode::Create, Group::Same) => {}
            (StartMode::Create, Group::Own) => attributes.join_group(0)?,
            (StartMode::Create, Group::Join(group)) => attributes.join_group(group)?,
            (StartMode::Create, Group::Session) => attributes.begin_session()?,
        }
        Ok(attributes)
    };
    make().map_err(|error| SpawnError::new(Step::Create, error))
}

/// Starts the child in the common case: with one call, or with one call for each executable file in the
/// search path that turns out not to be a program.
fn start_by_posix_spawn(
    plan: &Plan<'_>,
    layout: &Layout,
    moves: &HandleMoves,
    suspended: bool,
) -> Result<i32, SpawnError> {
    let mut actions = moves.actions(false)?;
    let mut moved = None;
    if let Some(dir) = plan.current_dir {
        let absolute = forked::Absolute::new(dir, layout.candidates());
        moved = Some(absolute.map_err(|error| SpawnError::new(Step::CurrentDir, error))?);
        // SAFETY: a string that the layout owns: it exists if the plan has a directory.
        let dir = unsafe { CStr::from_ptr(layout.current_dir()) };
        actions.change_dir(dir).map_err(|error| SpawnError::new(Step::CurrentDir, error))?;
    }
    let candidates = moved.as_ref().map_or(layout.candidates(), forked::Absolute::candidates);
    let attributes = attributes(plan, moves, StartMode::Create, suspended)?;
    let (argv, envp) = (layout.argv(), layout.envp());
    let make = |path| {
        // SAFETY: a candidate, and arrays that the layout owns, each ended by NULL.
        unsafe { posix_spawn(path, &actions, &attributes, argv, envp) }
    };
    // SAFETY: an array that the layout owns, or that was made of one, ended by NULL.
    let started = unsafe { forked::first(candidates, !is_path(plan.program), make) };
    started.map_err(|errno| forked::failed_step(plan, errno))
}

/// The flag for a new session: sys/spawn.h, macOS 10.15.
const POSIX_SPAWN_SETSID: libc::c_int = 0x0400;

unsafe extern "C" {
    /// Adds an action that keeps a handle: spawn.h, macOS 10.7.
    fn posix_spawn_file_actions_addinherit_np(
        actions: *mut libc::posix_spawn_file_actions_t,
        fd: libc::c_int,
    ) -> libc::c_int;
}

/// The actions of the new process on its handles and its working directory before it executes the program.
#[derive(Debug)]
struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new() -> io::Result<Actions> {
        let mut actions = std::ptr::null_mut();
        // SAFETY: room for the pointer that the call writes.
        check(unsafe { libc::posix_spawn_file_actions_init(&raw mut actions) })?;
        Ok(Actions(actions))
    }

    /// Makes `to` a copy of `from`.
    fn dup2(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: a live object and numbers.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.0, from, to) })
    }

    /// Keeps a handle, marked close-on-exec or not.
    fn inherit(&mut self, fd: RawFd) -> io::Result<()> {
        // SAFETY: a live object and a number.
        check(unsafe { posix_spawn_file_actions_addinherit_np(&raw mut self.0, fd) })
    }

    fn open(&mut self, fd: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<()> {
        // SAFETY: a live object, a C string that is copied, and numbers.
        check(unsafe {
            libc::posix_spawn_file_actions_addopen(&raw mut self.0, fd, path.as_ptr(), flags, 0)
        })
    }

    /// Changes the working directory (macOS 10.15). Not for a relative program: that starts, and the call
    /// still returns ENOENT (rust-lang/rust#37868).
    fn change_dir(&mut self, dir: &CStr) -> io::Result<()> {
        // SAFETY: a live object, and a C string that is copied.
        check(unsafe { libc::posix_spawn_file_actions_addchdir_np(&raw mut self.0, dir.as_ptr()) })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: made by init, and never used again.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

/// The other attributes of the new process.
#[derive(Debug)]
struct SpawnAttributes {
    object: libc::posix_spawnattr_t,
    flags: libc::c_int,
}

impl SpawnAttributes {
    /// Creates the default attributes: no handler of the parent, which exec resets, and SIGPIPE and the others at their
    /// defaults. Rust programs ignore SIGPIPE from the start, and a child that inherits that does not stop when its
    /// reader is gone (rust-lang/rust#62569).
    fn with_defaults(options: &UnixOptions) -> io::Result<SpawnAttributes> {
        let mut attributes = SpawnAttributes::new()?;
        let others = options.default_signals.iter().map(|signal| signal.number());
        let pipe = (!options.keeps_ignored_pipe).then_some(libc::SIGPIPE);
        let numbers: Vec<_> = pipe.into_iter().chain(others).collect();
        attributes.default_signals(&signals(&numbers))?;
        Ok(attributes)
    }

    fn new() -> io::Result<SpawnAttributes> {
        let mut object = std::ptr::null_mut();
        // SAFETY: room for the pointer that the call writes.
        check(unsafe { libc::posix_spawnattr_init(&raw mut object) })?;
        Ok(SpawnAttributes { object, flags: 0 })
    }

    fn default_signals(&mut self, set: &libc::sigset_t) -> io::Result<()> {
        // SAFETY: a live object and a live set.
        check(unsafe { libc::posix_spawnattr_setsigdefault(&raw mut self.object, set) })?;
        self.add(libc::POSIX_SPAWN_SETSIGDEF)
    }

    fn block(&mut self, set: &libc::sigset_t) -> io::Result<()> {
        // SAFETY: a live object and a live set.
        check(unsafe { libc::posix_spawnattr_setsigmask(&raw mut self.object, set) })?;
        self.add(libc::POSIX_SPAWN_SETSIGMASK)
    }

    /// Closes every handle that no action names.
    fn close_others(&mut self) -> io::Result<()> {
        self.add(libc::POSIX_SPAWN_CLOEXEC_DEFAULT)
    }

    /// Puts it into a process group; 0 is a group of its own.
    fn join_group(&mut self, group: libc::pid_t) -> io::Result<()> {
        // SAFETY: a live object and a number.
        check(unsafe { libc::posix_spawnattr_setpgroup(&raw mut self.object, group) })?;
        self.add(libc::POSIX_SPAWN_SETPGROUP)
    }

    fn begin_session(&mut self) -> io::Result<()> {
        self.add(POSIX_SPAWN_SETSID)
    }

    /// Starts it suspended: none of it runs before SIGCONT.
    fn start_suspended(&mut self) -> io::Result<()> {
        self.add(libc::POSIX_SPAWN_START_SUSPENDED)
    }

    /// Creates no process: this one executes the program.
    fn replace_this_process(&mut self) -> io::Result<()> {
        self.add(libc::POSIX_SPAWN_SETEXEC)
    }

    fn add(&mut self, flag: libc::c_int) -> io::Result<()> {
        self.flags |= flag;
        // SAFETY: a live object; the flags are those of a short.
        check(unsafe {
            libc::posix_spawnattr_setflags(&raw mut self.object, self.flags as libc::c_short)
        })
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: made by init, and never used again.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.object) };
    }
}

/// Calls `posix_spawn`. It allocates nothing, so that with `POSIX_SPAWN_SETEXEC` a forked child can call it
/// as well; then it returns only if something failed.
///
/// # Safety
/// `path` is a C string; `argv` and `envp` are arrays of C strings, each ended by NULL.
unsafe fn posix_spawn(
    path: *const c_char,
    actions: &Actions,
    attributes: &SpawnAttributes,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> Result<i32, i32> {
    let mut pid = 0;
    // SAFETY: as this function's; the objects are live, and the call changes none of the strings.
    let errno = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            path,
            &raw const actions.0,
            &raw const attributes.object,
            argv.cast::<*mut c_char>(),
            envp.cast::<*mut c_char>(),
        )
    };
    if errno == 0 { Ok(pid) } else { Err(errno) }
}

fn signals(numbers: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for number in numbers {
        // SAFETY: filled by the call above; each is a signal.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *number) };
    }
    // SAFETY: filled by the first call.
    unsafe { set.assume_init() }
}

fn all_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills the set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: as above.
    unsafe { set.assume_init() }
}

/// Turns the returned error into a result: these calls do not set errno.
fn check(errno: libc::c_int) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// The number of the pipe in the shell.
const PIPE_FD: RawFd = 3;

/// The script that kills a group. The shell itself ends at once, and the process that it leaves behind
/// becomes a child of launchd, so this process does not have to reap it. A line in the pipe disarms the
/// guard; the end of the pipe without a line means that this process has ended. `$1` is the process or
/// group to kill; 0 is the group of the shell.
const GROUP_SCRIPT: &CStr = c"(read -r over <&3 || kill -s KILL \"$1\") &";

/// The script that kills a child. When this process ends, the number of the child may have passed to
/// another process, if other code has reaped the child or the pipe's end was leaked. So the start time is
/// compared. If `ps` does not work, both times are empty.
const CHILD_SCRIPT: &CStr = c"(s=$(/bin/ps -o lstart= -p \"$1\"); read -r over <&3 || \
    if [ \"$s\" = \"$(/bin/ps -o lstart= -p \"$1\")\" ]; then kill -s KILL \"$1\"; fi) &";

// Starts a process that outlives this one, and kills a child, or a child's group, when this process has
// ended.
//
// macOS has no parent-death signal. A kqueue with `NOTE_EXIT` for this process would need another process
// to wait in it: a forked copy of a whole program, whose memory stays as long as the child runs, or a
// program that is installed along with this one. But every macOS has `/bin/sh`. It waits for the end of a
// pipe whose other end only this process has: when this process ends, in whatever way, the kernel closes
// that end.
//
// The guard has two limits: if a fork of this program continues to run without executing another program,
// the pipe is not closed before that fork ends too. And if the guard is killed, the child continues to run.

/// Starts the guard of a child that does not run yet. The guard waits when this returns.
fn start_guard(child: i32, target: GuardTarget) -> io::Result<Guard> {
    let (read, write) = crate::base::pipe::new_pipe()?;
    disable_sigpipe(&write)?;
    let shell = start_shell(child, target, &read)?;
    drop(read);
    match wait4(shell, 0) {
        Ok(Some((status, _))) if status.success() => {}
        // Other code of this program has reaped it; it was started.
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {}
        Err(error) => return Err(error),
        Ok(_) => return Err(io::Error::other("the guard of the child could not be started")),
    }
    Ok(Guard::new(write, target))
}

fn start_shell(child: i32, target: GuardTarget, pipe: &OwnedFd) -> io::Result<i32> {
    let mut actions = Actions::new()?;
    // Before the other actions, which could overwrite it.
    match pipe.as_raw_fd() {
        PIPE_FD => actions.inherit(PIPE_FD)?,
        from => actions.dup2(from, PIPE_FD)?,
    }
    for fd in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        actions.open(fd, c"/dev/null", libc::O_RDWR)?;
    }
    // So that the guard keeps no directory from being unmounted.
    actions.change_dir(c"/")?;
    let mut attributes = SpawnAttributes::new()?;
    attributes.close_others()?;
    attributes.default_signals(&signals(&[libc::SIGCHLD, libc::SIGPIPE]))?;
    // Signals for the group, or from the terminal, are not meant for the guard.
    attributes.block(&all_signals())?;
    let (script, target) = match target {
        GuardTarget::Child => {
            attributes.begin_session()?;
            (CHILD_SCRIPT, CString::new(child.to_string())?)
        }
        GuardTarget::Group => {
            attributes.join_group(child)?;
            (GROUP_SCRIPT, c"0".to_owned())
        }
    };
    let arguments = [c"sh", c"-c", script, c"pipewright-guard", &target].map(CStr::as_ptr);
    let [a, b, c, d, e] = arguments;
    let argv: [*const c_char; 6] = [a, b, c, d, e, ptr::null()];
    let envp: [*const c_char; 1] = [ptr::null()];
    let path = c"/bin/sh".as_ptr();
    // SAFETY: a C string, and arrays of C strings that end with NULL.
    let started = unsafe { posix_spawn(path, &actions, &attributes, argv.as_ptr(), envp.as_ptr()) };
    started.map_err(io::Error::from_raw_os_error)
}

/// Disables SIGPIPE for the pipe: a guard that was killed must not end a program that does not ignore
/// SIGPIPE.
fn disable_sigpipe(pipe: &OwnedFd) -> io::Result<()> {
    // SAFETY: an open descriptor and a number.
    match unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETNOSIGPIPE, 1) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use super::*;
    use crate::process::libproc::members_of;
    use crate::process::start::{ChildStdio, Contain, Env, Inherit, Search};

    fn plan(unix: &UnixOptions) -> Plan<'_> {
        Plan {
            program: OsStr::new("true"),
            search: Search::Default,
            arg0: None,
            args: &[],
            env: Env::Exactly(&[]),
            current_dir: None,
            stdio: [ChildStdio::Inherit, ChildStdio::Inherit, ChildStdio::Inherit],
            inherit: Inherit::List(&[]),
            contain: None,
            limits: None,
            slot: None,
            foreground: None,
            terminal: None,
            unix,
            windows: None,
        }
    }

    /// With a guard, which waits, and a niceness, which needs a fork: the signal that resumes the child must not come
    /// before it is suspended.
    #[test]
    fn a_forked_child_with_a_guard_runs() {
        let unix = UnixOptions {
            nice: Some(0),
            kill_on_parent_exit: Some(crate::process::start::parent_exit()),
            ..UnixOptions::default()
        };
        let plan = plan(&unix);
        for _ in 0..200 {
            assert!(spawn(&plan).unwrap().wait().unwrap().status.success());
        }
    }

    #[test]
    fn what_is_left_of_the_group_of_a_tree_is_ended_and_counted() {
        let (unix, args) =
            (UnixOptions::default(), ["-c", "sleep 600 & sleep 600 &"].map(OsString::from));
        for (ends_with_parent, waits) in [(false, true), (true, true), (true, false)] {
            let plan = Plan {
                program: OsStr::new("sh"),
                args: &args,
                contain: Some(Contain::tree(ends_with_parent)),
                ..plan(&unix)
            };
            let child = spawn(&plan).unwrap();
            let group = child.pid();
            if waits {
                assert!(child.wait().unwrap().status.success());
                assert_eq!(child.end_group(), 2, "{ends_with_parent}");
            }
            let others = child.end_group();
            assert_eq!(child.end_group(), others);
            let lives = |pid: u32| ProcessInfo::of(pid).is_some_and(|state| !state.is_ending());
            let left: Vec<u32> = members_of(group).into_iter().filter(|pid| lives(*pid)).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}
