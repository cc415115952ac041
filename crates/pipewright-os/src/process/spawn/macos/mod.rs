//! Starts by `posix_spawn(2)`, and by `fork(2)` before it for options that it lacks.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the choice between the two, and the work before the program runs |
//! | `actions.rs` | the call and its objects |
//! | `moves.rs` | the handles that the child gets |
//! | `search.rs` | the search for the program, and the reason of a failure |
//! | `forked.rs` | the code between fork and exec |
//! | `guard.rs` | the process that outlives this one |
//!
//! `posix_spawn` copies nothing of this process, and the kernel closes the handles that are not listed. It
//! has no option for a user, a root directory, a umask, a niceness, a limit or a terminal. A child with one of these is
//! forked, which costs as much as a fork of this process. It then executes its program by the same call,
//! with the same objects (`POSIX_SPAWN_SETEXEC`). So the two ways differ only in those options.

use std::convert::Infallible;
use std::ffi::CStr;
use std::io;
use std::thread;
use std::time::Duration;

use super::layout::Layout;
use super::{
    BadInput, Credentials, Group, ParentExit, Plan, SpawnError, Step, TreeSlot, UnixOptions,
};
use crate::base::signal::{AllBlocked, Signal, current_mask};
use crate::process::child::guard::{Guard, GuardTarget};
use crate::process::child::{ChildHandle, Containment, macos as exit};
use crate::process::libproc::{ProcessInfo, is_taken};
use crate::process::limits::LimitUnavailable;

mod actions;
mod forked;
mod guard;
mod moves;
mod search;

pub(super) use super::layout::{is_path, search_dirs};
use actions::SpawnAttributes;
pub(super) use forked::{FORK, Fork};
use guard::start_guard;
use moves::HandleMoves;

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

/// Waits until the kernel has suspended a child that was started so. For a child that was forked, exec closes the pipe of the
/// report first: a signal before the suspension would be lost, and the child suspended for ever.
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
    if plan.unix.std_rules { current_mask() } else { actions::signals(&[]) }
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
        let absolute = search::Absolute::new(dir, layout.candidates());
        moved = Some(absolute.map_err(|error| SpawnError::new(Step::CurrentDir, error))?);
        // SAFETY: a string that the layout owns: it exists if the plan has a directory.
        let dir = unsafe { CStr::from_ptr(layout.current_dir()) };
        actions.change_dir(dir).map_err(|error| SpawnError::new(Step::CurrentDir, error))?;
    }
    let candidates = moved.as_ref().map_or(layout.candidates(), search::Absolute::candidates);
    let attributes = attributes(plan, moves, StartMode::Create, suspended)?;
    let (argv, envp) = (layout.argv(), layout.envp());
    let make = |path| {
        // SAFETY: a candidate, and arrays that the layout owns, each ended by NULL.
        unsafe { actions::posix_spawn(path, &actions, &attributes, argv, envp) }
    };
    // SAFETY: an array that the layout owns, or that was made of one, ended by NULL.
    let started = unsafe { search::first(candidates, !is_path(plan.program), make) };
    started.map_err(|errno| search::failed_step(plan, errno))
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use super::*;
    use crate::process::libproc::members_of;
    use crate::process::spawn::{ChildStdio, Contain, Env, Inherit, Search};

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

    /// With a guard, which waits, and a niceness, which needs a fork: the signal that resumes the child must not come before it is
    /// suspended.
    #[test]
    fn a_forked_child_with_a_guard_runs() {
        let unix = UnixOptions {
            nice: Some(0),
            kill_on_parent_exit: Some(super::super::parent_exit()),
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
