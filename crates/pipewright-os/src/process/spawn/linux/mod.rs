//! The parent's half of a start.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};

use super::layout::{self, Layout};
use super::{ChildStdio, Group, Inherit, Plan, SpawnError, Step, listed, steps};
use crate::base::handle::Handle;
use crate::base::signal::{AllBlocked, Signal, current_mask};
use crate::process::child::{ChildHandle, Containment, linux as exit};
use crate::process::pidfd::open_pidfd;

mod bare;
mod child;
mod clone;
mod digits;
mod dumpable;
mod error_pipe;
mod forked;
mod held;
mod immortal;
mod raw_clone;
mod sandbox;
mod stack;
mod supervised;
mod trial;

use child::{Job, Move};
use error_pipe::ErrorPipe;
pub(super) use forked::{FORK, Fork};
pub(crate) use held::start_held;
pub(super) use immortal::run as run_forever;
use stack::Stack;
pub(crate) use trial::try_supervisor;

pub(super) fn spawn(plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
    if let Some(contain) = plan.contain {
        return (contain.start)(plan, contain.dies_with_us);
    }
    let layout = Layout::new(plan)?;
    let moves = moves(plan)?;
    start(&job(plan, &layout, &moves), start_alone)
}

pub(super) use layout::is_path;

pub(super) fn search_dirs<'a>(plan: &Plan<'a>) -> impl Iterator<Item = PathBuf> + use<'a> {
    layout::search_dirs(plan.search).map(|dir| PathBuf::from(OsStr::from_bytes(dir)))
}

pub(super) fn exec(plan: &Plan<'_>) -> Result<Infallible, SpawnError> {
    let layout = Layout::new(plan)?;
    let moves = moves(plan)?;
    let job = job(plan, &layout, &moves);
    let mut locked = plan.unix.pre_exec.lock();
    let closures = locked.as_mut().map_or(&mut [][..], |locked| &mut locked.closures);
    // If it fails this process lives on, with the signal mask that it had.
    let _mask = AllBlocked::new();
    // SAFETY: the job borrows live data, and this thread is the one that becomes the program.
    unsafe { child::become_program(&job, closures) };
    Err(failure(&job)
        .unwrap_or_else(|| SpawnError::new(Step::Exec, io::Error::from_raw_os_error(libc::ENOENT))))
}

/// How often a start is tried again because a stop signal came in between. Each time this process
/// is stopped and continued first, so it takes a person, or a storm of signals, to use them up.
const MOST_STOPS: usize = 100;

/// Starts what the job says, once more if a stop came in between.
fn start<T>(
    job: &Job<'_>,
    once: impl Fn(&Job<'_>) -> Result<T, SpawnError>,
) -> Result<T, SpawnError> {
    let mut stops = 0;
    loop {
        job.begin(stops < MOST_STOPS);
        match once(job) {
            Err(error) if error.source.raw_os_error() == Some(child::STOP_PENDING) => stops += 1,
            done => return done,
        }
    }
}

/// A child of this process.
fn start_alone(job: &Job<'_>) -> Result<ChildHandle, SpawnError> {
    let Some(thread) = job.options.kill_on_parent_exit else { return start_here(job) };
    // The kernel means the *thread* when it says parent (prctl(2), PR_SET_PDEATHSIG).
    let mut started = None;
    (thread.run)(&mut || started = Some(start_here(job)))
        .and_then(|()| {
            started.ok_or_else(|| io::Error::other("the thread that starts children has failed"))
        })
        .map_err(|error| SpawnError::new(Step::ParentDeath, error))?
}

fn start_here(job: &Job<'_>) -> Result<ChildHandle, SpawnError> {
    let create_error = |error| SpawnError::new(Step::Create, error);
    let _dumpable = job.changes_identity().then(dumpable::Kept::new);
    let hooks = job.options.pre_exec.lock();
    let pipe = ErrorPipe::new(job, hooks.is_some());
    let created = match hooks {
        None => Stack::take().and_then(|stack| clone::create(job, &stack)),
        Some(mut hooks) => (hooks.fork)(job, &mut hooks.closures).map(|pid| (pid, None)),
    };
    let (pid, pidfd) = created.map_err(create_error)?;
    let pidfd = pidfd.or_else(|| open_pidfd(pid));
    let mut exit = ChildHandle(exit::ChildHandle::new(pid, pidfd));
    if matches!(job.options.group, Group::Own | Group::Session) {
        exit.0.containment = Containment::Group;
    }
    let settled = pipe.settle(job);
    if settled.is_err() {
        // Nobody would be told of its error. Ignored: it has ended by itself.
        let _ = exit.signal(Signal::KILL);
    }
    match settled.map_err(create_error).err().or_else(|| failure(job)) {
        None => Ok(exit),
        Some(error) => {
            // It has exited; leave no zombie. Ignored: somebody else has reaped it.
            let _ = exit.wait();
            Err(error)
        }
    }
}

fn failure(job: &Job<'_>) -> Option<SpawnError> {
    use std::sync::atomic::Ordering::Relaxed;
    match job.errno.load(Relaxed) {
        0 => None,
        errno => Some(SpawnError::new(
            steps::step_of(job.failed_step.load(Relaxed)),
            io::Error::from_raw_os_error(errno),
        )),
    }
}

fn job<'a>(plan: &'a Plan<'a>, layout: &'a Layout, moves: &'a Moves) -> Job<'a> {
    Job {
        stdio: plan.stdio.map(|stdio| match stdio {
            ChildStdio::Inherit => None,
            ChildStdio::Handle(handle) => Some(handle.as_raw_fd()),
        }),
        moves: match moves {
            Moves::None => &[],
            Moves::Some(moves) => moves,
        },
        close_others: matches!(plan.inherit, Inherit::List(_)),
        options: plan.unix,
        unset_groups: plan.unix.unset_groups(),
        current_dir: layout.current_dir(),
        chroot: layout.chroot(),
        argv: layout.argv(),
        envp: layout.envp(),
        candidates: layout.candidates(),
        searches: !is_path(plan.program),
        mask: plan.unix.std_rules.then(current_mask),
        cgroup: None,
        cgroup_procs: None,
        terminal: plan
            .foreground
            .filter(|_| plan.unix.group == Group::Own)
            .map(|foreground| foreground.terminal().as_raw_fd()),
        parent_pid: match plan.unix.kill_on_parent_exit {
            Some(_) => std::process::id() as i32,
            None => 0,
        },
        ignores_children: AtomicBool::new(false),
        may_try_again: AtomicBool::new(false),
        failed_step: AtomicU32::new(0),
        errno: AtomicI32::new(0),
        began: AtomicBool::new(false),
        report_to: AtomicI32::new(-1),
    }
}

/// The inherited handles, ordered for the child.
enum Moves {
    /// The usual case, without an allocation.
    None,
    Some(Vec<Move>),
}

fn moves(plan: &Plan<'_>) -> Result<Moves, SpawnError> {
    let list = plan.inherit.list();
    if list.is_empty() {
        return Ok(Moves::None);
    }
    listed::check(list)?;
    let place = |entry: &(Handle, _)| Move::new(entry.0.as_raw_fd(), listed::number(entry));
    Ok(Moves::Some(list.iter().map(place).collect()))
}

/// Owns what `CLONE_PIDFD` wrote.
fn own_pidfd(raw: RawFd) -> Option<OwnedFd> {
    // SAFETY: the kernel made the descriptor for this call, and nobody else knows it.
    (raw >= 0).then(|| unsafe { OwnedFd::from_raw_fd(raw) })
}
