//! The parent's half of a start.

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};

use super::layout::Layout;
use super::{
    ChildStdio, Group, Inherit, ParentExit, Plan, Resource, SpawnError, Step, listed, steps,
};
use crate::base::handle::Handle;
use crate::base::signal::{AllBlocked, Signal};
use crate::base::test_hooks::{Forced, is_forced};
use crate::process::child::{ChildHandle, Containment, linux as exit};
use crate::process::nolibc::step;
use crate::process::nolibc::steps::{self as nolibc, Move, STOP_PENDING, Stdio, Steps};
use crate::process::pidfd::open_pidfd;

mod child;
mod clone;
mod contained;
mod digits;
mod dumpable;
mod error_pipe;
mod forked;
mod limited;
mod open_handles;
mod raw_syscall;
mod sandbox;
mod slot;
mod spawner_thread;
mod stack;
mod stop_watch;
mod supervised;
mod supervisor_program;
mod trial;

use child::ChildSetup;
pub(crate) use contained::start_contained;
use error_pipe::ErrorPipe;
pub(super) use forked::{FORK, Fork};
pub(crate) use limited::{SLOT_LIMITS, SlotLimits, start_limited};
pub(super) use slot::new_slot;
use stack::Stack;
pub(super) use stack::leaving;
use stop_watch::StopWatch;
pub(crate) use trial::try_supervisor;

pub(super) fn spawn(plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
    if let Some(contain) = plan.contain {
        return (contain.start)(plan, contain.ends_with_parent);
    }
    let layout = Layout::new(plan)?;
    let lists = Lists::of(plan)?;
    start(&child_setup(plan, &layout, &lists), start_uncontained)
}

pub(super) use super::layout::{is_path, search_dirs};

/// False: what holds a tree here ends it.
pub(super) const GUARDS_GROUPS: bool = false;

pub(super) fn parent_exit() -> ParentExit {
    ParentExit { run: spawner_thread::run }
}

pub(super) fn exec(plan: &Plan<'_>) -> Result<Infallible, SpawnError> {
    let layout = Layout::new(plan)?;
    let lists = Lists::of(plan)?;
    let setup = child_setup(plan, &layout, &lists);
    let mut locked = plan.unix.pre_exec.lock();
    let closures = locked.as_mut().map_or(&mut [][..], |locked| &mut locked.closures);
    // If the exec fails, this process continues with the signal mask that it had.
    let _mask = AllBlocked::new();
    // SAFETY: the setup borrows live data, and this thread is the one that becomes the program.
    unsafe { child::become_program(&setup, closures) };
    Err(failure(&setup)
        .unwrap_or_else(|| SpawnError::new(Step::Exec, io::Error::from_raw_os_error(libc::ENOENT))))
}

/// The maximum number of attempts if stop signals interrupt a start. Each time this process is stopped and
/// continued first, so only a person, or a storm of signals, can use them up.
const MOST_STOPS: usize = 100;

/// True once a child has been refused a copy of the handles that it shared.
static HANDLES_REFUSED: AtomicBool = AtomicBool::new(false);

/// Starts the child of the setup, and starts it again if a stop interrupts the start. If a child that shared the handles
/// fails, another one gets a copy of all: a path may name one of them (`/proc/self/fd/7`).
fn start<T>(
    setup: &ChildSetup<'_>,
    once: impl Fn(&ChildSetup<'_>) -> Result<T, SpawnError>,
) -> Result<T, SpawnError> {
    let mut stops = 0;
    let mut may_share = setup.close_others
        && setup.needs_no_handles()
        && !HANDLES_REFUSED.load(Relaxed)
        && !is_forced(Forced::NoSharedMemory);
    let mut may_close = setup.close_others && !setup.names_handle;
    loop {
        setup.reset(stops < MOST_STOPS, may_share, may_close);
        let done = once(setup);
        let errno = done.as_ref().err().and_then(|error| error.source.raw_os_error());
        match errno {
            Some(STOP_PENDING) => stops += 1,
            Some(errno) if setup.shares_handles.load(Relaxed) => {
                (may_share, may_close) = (false, false);
                if errno == child::HANDLES_SHARED {
                    HANDLES_REFUSED.store(true, Relaxed);
                }
            }
            // A link may lead to one of the handles. Not in groups, which the supervisor has removed with its attempt.
            Some(libc::ENOENT)
                if may_close
                    && setup.cgroup.is_none()
                    && setup.steps.groups.is_empty()
                    && setup.failed_step.load(Relaxed) == step::EXEC =>
            {
                may_close = false;
            }
            _ => return done,
        }
    }
}

/// Starts a child of this process.
fn start_uncontained(setup: &ChildSetup<'_>) -> Result<ChildHandle, SpawnError> {
    let Some(thread) = setup.options.kill_on_parent_exit else {
        return start_on_this_thread(setup);
    };
    // The kernel takes the *thread* as the parent (prctl(2), PR_SET_PDEATHSIG).
    let mut started = None;
    (thread.run)(&mut || started = Some(start_on_this_thread(setup)))
        .and_then(|()| {
            started.ok_or_else(|| io::Error::other("the thread that starts children has failed"))
        })
        .map_err(|error| SpawnError::new(Step::ParentDeath, error))?
}

fn start_on_this_thread(setup: &ChildSetup<'_>) -> Result<ChildHandle, SpawnError> {
    let create_error = |error| SpawnError::new(Step::Create, error);
    let _dumpable = setup.changes_identity().then(dumpable::DumpableGuard::new);
    let hooks = setup.options.pre_exec.lock();
    let pipe = ErrorPipe::new(setup, hooks.is_some());
    // A system that gives the child a copy of the memory may do anything with the handles.
    let shares_handles = setup.may_share_handles.load(Relaxed) && matches!(pipe, ErrorPipe::None);
    setup.shares_handles.store(shares_handles, Relaxed);
    let created = match hooks {
        None => Stack::take().and_then(|stack| clone::create(setup, &stack)),
        Some(mut hooks) => (hooks.fork)(setup, &mut hooks.closures).map(|pid| (pid, None)),
    };
    let (pid, pidfd) = created.map_err(create_error)?;
    // Without one, the child is known by its number.
    let pidfd = pidfd.or_else(|| open_pidfd(pid).ok().flatten());
    let watch = StopWatch::new(pid, pidfd.as_ref().map(AsRawFd::as_raw_fd));
    let mut exit = ChildHandle(exit::ChildHandle::new(pid, pidfd));
    if matches!(setup.options.group, Group::Own | Group::Session) {
        exit.0.containment = Containment::Group;
    }
    let finished = pipe.finish(setup, watch);
    if finished.is_err() {
        // The result of the start is unknown, so the child must not run. Ignored: it has ended on its own.
        let _ = exit.signal(Signal::KILL);
    }
    match finished.map_err(create_error).err().or_else(|| failure(setup)) {
        None => Ok(exit),
        Some(error) => {
            // It has exited; leave no zombie. Ignored: it has been reaped elsewhere.
            let _ = exit.wait();
            Err(error)
        }
    }
}

fn failure(setup: &ChildSetup<'_>) -> Option<SpawnError> {
    match setup.errno.load(Relaxed) {
        0 => None,
        errno => Some(SpawnError::new(
            steps::step_of(setup.failed_step.load(Relaxed)),
            io::Error::from_raw_os_error(errno),
        )),
    }
}

/// Returns true if a path goes through a folder of handles, as `/proc/self/fd/7` and `/dev/fd/7` do.
fn names_handle(path: &(impl AsRef<OsStr> + ?Sized)) -> bool {
    let mut folders = path.as_ref().as_bytes().split(|byte| *byte == b'/');
    folders.any(|name| name == b"fd")
}

fn child_setup<'a>(plan: &'a Plan<'a>, layout: &'a Layout, lists: &'a Lists) -> ChildSetup<'a> {
    let unix = plan.unix;
    let steps = Steps {
        default_signals: default_signals(plan),
        ignores_sigchld: Cell::new(false),
        groups: &[],
        group: match unix.group {
            Group::Same => nolibc::Group::Same,
            Group::Own => nolibc::Group::Own,
            Group::Join(group) => nolibc::Group::Join(group),
            Group::Session => nolibc::Group::Session,
        },
        own_terminal: own_terminal(plan).map(AsRawFd::as_raw_fd),
        foreground: plan
            .foreground
            .filter(|_| unix.group == Group::Own)
            .map(|foreground| foreground.terminal().as_raw_fd()),
        host_dir: None,
        stdio: plan.stdio.map(|stdio| match stdio {
            ChildStdio::Inherit => Stdio::Kept,
            ChildStdio::Handle(handle) => Stdio::From(handle.as_raw_fd()),
        }),
        moves: &lists.moves,
        limits: &lists.limits,
        umask: unix.umask,
        nice: unix.nice,
        current_dir: layout.current_dir(),
        argv: layout.argv(),
        envp: layout.envp(),
        candidates: layout.candidate_list(),
        searches: !is_path(plan.program),
        mask: if unix.std_rules { nolibc::own_mask() } else { 0 },
        may_retry: Cell::new(false),
        shares_memory: Cell::new(false),
    };
    ChildSetup {
        steps,
        close_others: matches!(plan.inherit, Inherit::List(_)),
        options: unix,
        unset_groups: unix.unset_groups(),
        chroot: layout.chroot(),
        cgroup: None,
        cgroup_procs: None,
        parent_pid: match unix.kill_on_parent_exit {
            Some(_) => std::process::id() as i32,
            None => 0,
        },
        failed_step: AtomicU32::new(0),
        errno: AtomicI32::new(0),
        has_begun: AtomicBool::new(false),
        report_to: AtomicI32::new(-1),
        may_share_handles: AtomicBool::new(false),
        names_handle: names_handle(plan.program) || plan.current_dir.is_some_and(names_handle),
        may_close_early: AtomicBool::new(false),
        shares_handles: AtomicBool::new(false),
    }
}

/// Returns the set of signals that get their default action.
fn default_signals(plan: &Plan<'_>) -> u64 {
    let signals = plan.unix.default_signals.iter().map(|signal| signal.number());
    // Rust programs ignore SIGPIPE from the start, and a child that inherits that does not stop when its reader is gone
    // (rust-lang/rust#62569).
    let pipe = (!plan.unix.keeps_ignored_pipe).then_some(libc::SIGPIPE);
    signals.chain(pipe).fold(0, |set, signal| set | nolibc::bit(signal as usize))
}

/// Returns the terminal that the child takes. Only a session can take one.
fn own_terminal<'a>(plan: &Plan<'a>) -> Option<&'a Handle> {
    plan.terminal.filter(|_| plan.unix.group == Group::Session)?.handle()
}

/// The lists of a plan as the child reads them. Usually empty, and then without an allocation.
struct Lists {
    /// The inherited handles, with their numbers in the child.
    moves: Vec<Move>,
    /// The resource limits, each three words.
    limits: Vec<u64>,
}

impl Lists {
    fn of(plan: &Plan<'_>) -> Result<Lists, SpawnError> {
        let list = plan.inherit.list();
        listed::check(list)?;
        let place = |entry: &(Handle, _)| Move::new(entry.0.as_raw_fd(), listed::number(entry));
        Ok(Lists { moves: list.iter().map(place).collect(), limits: limits(plan).collect() })
    }
}

/// Returns the resource limits of a plan, each three words: resource, soft, hard.
fn limits<'a>(plan: &Plan<'a>) -> impl Iterator<Item = u64> + use<'a> {
    const NO_LIMIT: u64 = libc::RLIM64_INFINITY;
    plan.unix.limits.iter().flat_map(|limit| {
        let number = u64::from(resource_number(limit.resource));
        [number, limit.soft.unwrap_or(NO_LIMIT), limit.hard.unwrap_or(NO_LIMIT)]
    })
}

/// Returns the number of a resource.
fn resource_number(resource: Resource) -> libc::c_uint {
    // They are c_uint in glibc, c_int in musl.
    let number = match resource {
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

/// Takes ownership of the pidfd that `CLONE_PIDFD` wrote.
fn own_pidfd(raw: RawFd) -> Option<OwnedFd> {
    // SAFETY: the kernel made the descriptor for this call, and it is owned nowhere else.
    (raw >= 0).then(|| unsafe { OwnedFd::from_raw_fd(raw) })
}
