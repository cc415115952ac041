//! `posix_spawn(2)`, and `fork(2)` before it for what it cannot do.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | which of the two ways, and what is done before the program runs |
//! | `actions.rs` | the call and its objects |
//! | `places.rs` | which handles the child gets |
//! | `search.rs` | which file is the program, and why it was none |
//! | `forked.rs` | the code between fork and exec |
//! | `guard.rs` | the process that outlives this one |
//!
//! `posix_spawn` copies nothing of us, and closes what is not listed in the kernel. It has no option
//! for a user, a root directory, a umask, a niceness or a limit. A child with one of these is forked,
//! and costs what a fork of this process costs; it then becomes its program by the same call, with
//! the same objects (`POSIX_SPAWN_SETEXEC`). So the two ways differ in those options and in nothing
//! else.

use std::convert::Infallible;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::layout::{self, Layout};
use super::{Group, Identity, ParentExit, Plan, SpawnError, Step, UnixOptions};
use crate::base::signal::{AllBlocked, Signal, current_mask};
use crate::process::child::guard::{Guard, Whom};
use crate::process::child::{ChildHandle, Containment, macos as exit};

mod actions;
mod forked;
mod guard;
mod places;
mod search;

use actions::Attributes;
pub(super) use forked::{FORK, Fork};
use guard::start_guard;
pub(super) use layout::is_path;
use places::Places;

pub(super) fn spawn(plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
    match plan.contain {
        Some(contain) => (contain.start)(plan, contain.dies_with_us),
        None => start(plan, plan.unix.kill_on_parent_exit.map(for_child)),
    }
}

/// There is nothing but a process group. With `dies_with_us` a guard is in it, and kills it.
pub(crate) fn start_held(plan: &Plan<'_>, dies_with_us: bool) -> Result<ChildHandle, SpawnError> {
    let group = match plan.unix.group {
        Group::Same | Group::Own => Group::Own,
        _ if dies_with_us => {
            // The guard cannot come into another session, and must not kill a group of strangers.
            let words = "its tree can end with this process only as a group of its own";
            let error = io::Error::new(io::ErrorKind::Unsupported, words);
            return Err(SpawnError::new(Step::Contain, error));
        }
        chosen => chosen,
    };
    let options = UnixOptions { group, ..plan.unix.clone() };
    let guarded = match options.kill_on_parent_exit {
        _ if dies_with_us => Some(Guarded { step: Step::Contain, begin: guard_group }),
        asked => asked.map(for_child),
    };
    start(&Plan { unix: &options, ..*plan }, guarded)
}

/// How a child is to be guarded. By a pointer, so that programs which never ask for it do not
/// contain it.
#[derive(Debug, Clone, Copy)]
struct Guarded {
    step: Step,
    begin: fn(child: i32) -> io::Result<Guard>,
}

fn for_child(asked: ParentExit) -> Guarded {
    Guarded { step: Step::ParentDeath, begin: asked.run }
}

fn guard_group(child: i32) -> io::Result<Guard> {
    start_guard(child, Whom::Group)
}

/// For a plan whose `kill_on_parent_exit` is set.
pub(super) fn run_forever(child: i32) -> io::Result<Guard> {
    start_guard(child, Whom::Child)
}

pub(super) fn search_dirs<'a>(plan: &Plan<'a>) -> impl Iterator<Item = PathBuf> + use<'a> {
    layout::search_dirs(plan.search).map(|dir| PathBuf::from(OsStr::from_bytes(dir)))
}

pub(super) fn exec(plan: &Plan<'_>) -> Result<Infallible, SpawnError> {
    let layout = Layout::new(plan)?;
    let places = Places::new(plan)?;
    let actions = places.actions(!plan.unix.pre_exec.is_empty())?;
    let attributes = attributes(plan, &places, Way::Replace, false)?;
    let job = forked::Job::new(plan, &layout, &places, &actions, &attributes);
    let mut locked = plan.unix.pre_exec.lock();
    let closures = locked.as_mut().map_or(&mut [][..], |locked| &mut locked.closures);
    // If it fails this process lives on, with the signal mask that it had.
    let _mask = AllBlocked::new();
    // SAFETY: the job borrows live data, and this thread is the one that becomes the program.
    let (step, errno) = unsafe { forked::become_program(&job, closures) };
    Err(SpawnError::new(step, io::Error::from_raw_os_error(errno)))
}

fn start(plan: &Plan<'_>, guarded: Option<Guarded>) -> Result<ChildHandle, SpawnError> {
    let layout = Layout::new(plan)?;
    let places = Places::new(plan)?;
    let terminal = plan.foreground.filter(|_| plan.unix.group == Group::Own);
    // What is still to be done by its number is done before the program runs.
    let waits = guarded.is_some() || terminal.is_some();
    let pid = match takes_fork(plan.unix) {
        false => spawned(plan, &layout, &places, waits)?,
        true => {
            let actions = places.actions(!plan.unix.pre_exec.is_empty())?;
            let attributes = attributes(plan, &places, Way::Replace, waits)?;
            forked::start(&forked::Job::new(plan, &layout, &places, &actions, &attributes))?
        }
    };
    let mut exit = exit::ChildHandle::new(pid);
    if matches!(plan.unix.group, Group::Own | Group::Session) {
        exit.containment = Containment::Group;
    }
    if let Some(terminal) = terminal {
        terminal.give_to(pid as u32);
    }
    let Some(guarded) = guarded else {
        return Ok(continued(ChildHandle(exit), waits));
    };
    match (guarded.begin)(pid) {
        Ok(guard) => Ok(continued(ChildHandle(exit.guarded_by(guard)), waits)),
        Err(error) => {
            let exit = ChildHandle(exit);
            // It has run nothing yet, and is ours: neither of the two can fail.
            let _ = exit.signal(Signal::KILL);
            let _ = exit.wait();
            Err(SpawnError::new(guarded.step, error))
        }
    }
}

/// Lets a child run that was started suspended.
fn continued(exit: ChildHandle, waits: bool) -> ChildHandle {
    if waits {
        // Ignored: it has no error. The child is unreaped; and we may signal whoever has our real
        // user (kill(2)), which a set-user-ID program leaves as it is until it runs, or we are root.
        let _ = exit.signal(Signal::CONT);
    }
    exit
}

fn takes_fork(options: &UnixOptions) -> bool {
    let UnixOptions { identity, chroot, umask, nice, limits, pre_exec, .. } = options;
    let changes_rights = *identity != Identity::default() || chroot.is_some();
    let changes_limits = umask.is_some() || nice.is_some() || !limits.is_empty();
    changes_rights || changes_limits || !pre_exec.is_empty()
}

/// How a process comes to its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It is made for it.
    Create,
    /// It is there, in its group and its directory, and becomes it.
    Replace,
}

/// The signal mask of the program. Where there are closures it is set before they run, because they may
/// change it.
fn mask(plan: &Plan<'_>) -> libc::sigset_t {
    if plan.unix.std_rules { current_mask() } else { actions::signals(&[]) }
}

fn attributes(
    plan: &Plan<'_>,
    places: &Places,
    way: Way,
    suspended: bool,
) -> Result<Attributes, SpawnError> {
    let make = || {
        let mut attributes = Attributes::usual()?;
        if plan.unix.pre_exec.is_empty() {
            attributes.block(&mask(plan))?;
        }
        if places.closes_others() {
            attributes.close_others()?;
        }
        if suspended {
            attributes.start_suspended()?;
        }
        match (way, plan.unix.group) {
            (Way::Replace, _) => attributes.replace_this_process()?,
            (Way::Create, Group::Same) => {}
            (Way::Create, Group::Own) => attributes.join_group(0)?,
            (Way::Create, Group::Join(group)) => attributes.join_group(group)?,
            (Way::Create, Group::Session) => attributes.begin_session()?,
        }
        Ok(attributes)
    };
    make().map_err(|error| SpawnError::new(Step::Create, error))
}

/// The usual way: one call, or one for each file in the search path that can be executed and is
/// none after all.
fn spawned(
    plan: &Plan<'_>,
    layout: &Layout,
    places: &Places,
    suspended: bool,
) -> Result<i32, SpawnError> {
    let mut actions = places.actions(false)?;
    let mut moved = None;
    if let Some(dir) = plan.current_dir {
        let absolute = search::Absolute::new(dir, layout.candidates());
        moved = Some(absolute.map_err(|error| SpawnError::new(Step::CurrentDir, error))?);
        // SAFETY: a string that the layout owns: it is there where the plan has a directory.
        let dir = unsafe { CStr::from_ptr(layout.current_dir()) };
        actions.change_dir(dir).map_err(|error| SpawnError::new(Step::CurrentDir, error))?;
    }
    let candidates = moved.as_ref().map_or(layout.candidates(), search::Absolute::candidates);
    let attributes = attributes(plan, places, Way::Create, suspended)?;
    let (argv, envp) = (layout.argv(), layout.envp());
    let make = |path| {
        // SAFETY: a candidate, and arrays that the layout owns, each ended by NULL.
        unsafe { actions::posix_spawn(path, &actions, &attributes, argv, envp) }
    };
    // SAFETY: an array that the layout owns, or that was made of one, ended by NULL.
    let started = unsafe { search::first(candidates, !is_path(plan.program), make) };
    started.map_err(|errno| search::why_not(plan, errno))
}
