//! Starts a child whose tree is contained: in a cgroup, below a supervisor, or in a group; with limits or without.
//!
//! A child below a supervisor has the line: host, guard, supervisor, child.
//!
//! The guard and the supervisor are created like the child: they run in the host's memory until they
//! execute the program in `contain/linux/image.rs`. So the child inherits from the host everything that it
//! would have inherited without them, a large process is not copied, and nothing has to be installed. Only
//! the parent of the child is different.
//!
//! The host waits only for the child: the supervisor executes its program after it has reported the child,
//! and the guard after the supervisor. So both run beside the host, on stacks that are not reused before
//! they have left them, and with system calls that do not touch `errno` (`raw_syscall.rs`), because that `errno`
//! belongs to the host's thread that waits.
//!
//! A slot's supervisor starts no command in this way: it executes its program at once, which then starts the commands
//! (`supervisor/start.rs`).
//!
//! The first start in a process finds out if this machine lets the program run and work. In that start the
//! guard executes the program first, and the supervisor starts nothing before the guard has reported that
//! it works.

use std::ffi::{CString, c_int, c_void};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::{fmt, io, mem, ptr};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};

use super::clone::{self, ChildSetup, CloneRequest, Stack};
use super::supervisor_program::{
    CHILDREN, GUARD_PIDFD, HANDLES, NONE, PLANS, PROOF, SupervisorProgram,
};
use super::{
    DumpableGuard, Group, Lists, Plan, SpawnError, Step, child_setup, failure, own_pidfd,
    raw_syscall, start, start_uncontained,
};
use crate::base::error::{is_lack, is_lack_of_room};
use crate::base::signal::AllBlocked;
use crate::process::child::{ChildHandle, linux as exit};
use crate::process::contain::linux::cgroup::{self, Cgroup};
use crate::process::contain::linux::image::{self, image};
use crate::process::contain::linux::limits::{KeptGroups, LimitedGroups, NotLimited, keep};
use crate::process::contain::linux::report::{
    CommandReporter, NotStarted, Reports, StartedCommand,
};
use crate::process::contain::linux::{LinuxTree, Supervisor, TreeMeter, release_groups};
use crate::process::limits::TreeLimits;
use crate::process::member::Member;
use crate::process::nolibc::children::end_children;
use crate::process::pidfd::{pidfds_are_refused, send};
use crate::process::start::layout::Layout;
use crate::process::start::{BadInput, UnixOptions};

/// Starts a contained child. Tries the best way first: a cgroup, and a supervisor too if the tree has to
/// end with this process; a supervisor; a process group.
pub(crate) fn start_contained(
    plan: &Plan<'_>,
    ends_with_parent: bool,
) -> Result<ChildHandle, SpawnError> {
    let layout = &Layout::new(plan)?;
    let lists = &Lists::of(plan)?;
    if ends_with_parent {
        // A process group is not enough.
        can_supervise(plan)?;
    }
    let cgroup = Cgroup::new().map_err(|error| SpawnError::new(Step::Create, error))?;
    if let Some(cgroup) = cgroup {
        match start_held(plan, layout, lists, cgroup.into(), ends_with_parent) {
            Err(error) if cgroup_errno(&error).is_some() => {
                if cgroup_errno(&error).is_some_and(cgroup::is_permanent) {
                    cgroup::disable();
                }
            }
            done => {
                // The child runs meanwhile, so this delays nothing.
                cgroup::remove_stale();
                return done;
            }
        }
    }
    let lives_on = !ends_with_parent;
    let supervised = can_supervise(plan)
        .and_then(|()| start_supervised(plan, layout, lists, TreeHolder::default(), lives_on));
    match supervised {
        Err(error) if error.step == Step::Contain && !ends_with_parent => {
            start_in_group(plan, lists)
        }
        done => done,
    }
}

/// The groups that hold a tree, beside a supervisor.
#[derive(Default)]
pub(super) struct TreeHolder {
    /// The cgroup that contains the tree.
    pub(super) cgroup: Option<Cgroup>,
    /// The files by which the child joins the groups of its limits, if the cgroup does not hold the limits.
    pub(super) limit_procs: Vec<OwnedFd>,
    /// The groups of its limits, and their figures.
    pub(super) meter: Option<Box<dyn TreeMeter>>,
}

impl From<Cgroup> for TreeHolder {
    fn from(cgroup: Cgroup) -> TreeHolder {
        TreeHolder { cgroup: Some(cgroup), ..TreeHolder::default() }
    }
}

/// Starts a child that a cgroup holds, and also a supervisor if the tree has to end with this process.
fn start_held(
    plan: &Plan<'_>,
    layout: &Layout,
    lists: &Lists,
    holder: TreeHolder,
    ends_with_parent: bool,
) -> Result<ChildHandle, SpawnError> {
    if ends_with_parent || holder.cgroup.is_none() {
        return start_supervised(plan, layout, lists, holder, false);
    }
    let TreeHolder { cgroup, limit_procs, meter } = holder;
    let groups: Vec<RawFd> = limit_procs.iter().map(AsRawFd::as_raw_fd).collect();
    // A forked child joins by the file.
    let is_born_there = clone::is_born_in_cgroup() && plan.unix.pre_exec.is_empty();
    let mut procs = open_procs(cgroup.as_ref().filter(|_| !is_born_there))?;
    let exit = loop {
        let setup = setup_in(plan, layout, lists, cgroup.as_ref(), procs.as_ref(), &groups);
        match start(&setup, start_uncontained) {
            Err(error) if error.source.raw_os_error() == Some(clone::NOT_BORN_IN_CGROUP) => {
                procs = open_procs(cgroup.as_ref())?;
            }
            done => break done?,
        }
    };
    let tree = LinuxTree::new(cgroup, None, exit.pid()).with_meter(meter);
    Ok(ChildHandle(exit.0.with_tree(Box::new(tree))))
}

fn open_procs(cgroup: Option<&Cgroup>) -> Result<Option<OwnedFd>, SpawnError> {
    let procs = cgroup.map(Cgroup::procs).transpose();
    procs.map_err(|error| SpawnError::new(Step::Contain, error))
}

fn setup_in<'a>(
    plan: &'a Plan<'a>,
    layout: &'a Layout,
    lists: &'a Lists,
    cgroup: Option<&Cgroup>,
    procs: Option<&OwnedFd>,
    groups: &'a [RawFd],
) -> ChildSetup<'a> {
    let mut setup = child_setup(plan, layout, lists);
    setup.cgroup = cgroup.map(|cgroup| cgroup.dir().as_raw_fd());
    setup.cgroup_procs = procs.map(AsRawFd::as_raw_fd);
    setup.steps.groups = groups;
    setup
}

fn start_supervised(
    plan: &Plan<'_>,
    layout: &Layout,
    lists: &Lists,
    holder: TreeHolder,
    lives_on: bool,
) -> Result<ChildHandle, SpawnError> {
    let TreeHolder { cgroup, limit_procs, meter } = holder;
    let groups: Vec<RawFd> = limit_procs.iter().map(AsRawFd::as_raw_fd).collect();
    let procs = open_procs(cgroup.as_ref())?;
    let mut setup = setup_in(plan, layout, lists, cgroup.as_ref(), procs.as_ref(), &groups);
    // The supervisor is its parent, and makes sure of that.
    setup.parent_pid = 0;
    let _dumpable = setup.changes_identity().then(DumpableGuard::new);
    let paths = meter.as_ref().map(|meter| meter.group_paths());
    let child = start(&setup, |setup| {
        start_below_supervisor(setup, cgroup.as_ref(), paths.as_deref(), lives_on)
    });
    let child = child.map_err(|error| match error {
        SpawnError { step: Step::Contain, source, .. } if source.raw_os_error().is_none() => {
            SpawnError::new(Step::Contain, cannot_supervise(&source))
        }
        other => other,
    })?;
    exit::preload_peak_memory();
    let reporter = CommandReporter::new(child.supervisor.reports.clone(), child.pid);
    let tree = LinuxTree::new(cgroup, Some(child.supervisor), child.pid as u32).with_meter(meter);
    Ok(ChildHandle(
        exit::ChildHandle::new(child.pid, child.pidfd)
            .with_reporter(Box::new(reporter))
            .with_tree(Box::new(tree)),
    ))
}

fn start_in_group(plan: &Plan<'_>, lists: &Lists) -> Result<ChildHandle, SpawnError> {
    let group = match plan.unix.group {
        Group::Same => Group::Own,
        chosen => chosen,
    };
    let options = UnixOptions { group, ..plan.unix.clone() };
    let plan = Plan { unix: &options, ..*plan };
    let layout = Layout::new(&plan)?;
    start(&child_setup(&plan, &layout, lists), start_uncontained)
}

/// Checks that a supervisor is possible for that child.
fn can_supervise(plan: &Plan<'_>) -> Result<(), SpawnError> {
    // Its parent would be a process in this process's memory, which must not run closures.
    if !plan.unix.pre_exec.is_empty() {
        let reason = cannot_supervise(&"it has pre_exec closures");
        return Err(SpawnError::new(Step::Contain, reason));
    }
    can_supervise_any()
}

/// Checks that a supervisor is possible here.
pub(super) fn can_supervise_any() -> Result<(), SpawnError> {
    // Signals would go by a number that the supervisor may have freed.
    if pidfds_are_refused() {
        return Err(SpawnError::new(Step::Contain, cannot_supervise(&"no pidfds")));
    }
    image().map(drop).map_err(not_supervised)
}

/// Returns the error of a start whose tree cannot be supervised, now or here.
pub(super) fn not_supervised(error: io::Error) -> SpawnError {
    // Another way to hold it would not be better, only weaker.
    if is_lack(&error) {
        return SpawnError::new(Step::Create, error);
    }
    SpawnError::new(Step::Contain, cannot_supervise(&error))
}

pub(super) fn cannot_supervise(reason: &dyn fmt::Display) -> io::Error {
    let message = format!("its tree cannot be supervised: {reason}");
    io::Error::new(io::ErrorKind::Unsupported, message)
}

/// Returns the errno if the cgroup is the reason why the child could not be started. A lack of room does
/// not count.
fn cgroup_errno(error: &SpawnError) -> Option<Errno> {
    let errno = Errno::from_io_error(&error.source)?;
    let is_about_cgroup = match error.step {
        // It joins by a write. An error without a number is about the supervisor.
        Step::Contain => !is_lack_of_room(errno),
        // From CLONE_INTO_CGROUP (clone(2)). If that is not known, the child joins by a write.
        Step::Create => matches!(
            errno,
            Errno::ACCESS | Errno::BUSY | Errno::NODEV | Errno::NOENT | Errno::OPNOTSUPP
        ),
        _ => false,
    };
    is_about_cgroup.then_some(errno)
}

/// Starts a contained child with the limits of the plan.
pub(crate) fn start_limited(
    plan: &Plan<'_>,
    ends_with_parent: bool,
) -> Result<ChildHandle, SpawnError> {
    let limits = plan.limits.copied().unwrap_or_default();
    check_limits(&limits)?;
    let layout = &Layout::new(plan)?;
    let lists = &Lists::of(plan)?;
    if ends_with_parent {
        can_supervise(plan)?;
    }
    let LimitedGroups { cgroup, limit_procs, meter } = LimitedGroups::new(limits)?;
    if cgroup.is_none() {
        // Something has to find and end all processes of the tree.
        can_supervise(plan)?;
    }
    let holder = TreeHolder { cgroup, limit_procs, meter: Some(Box::new(meter)) };
    start_held(plan, layout, lists, holder, ends_with_parent)
}

/// A function that returns the groups for the next tree of a slot, perhaps those of the last one.
pub(crate) type SlotLimits =
    fn(TreeLimits, Option<Arc<dyn KeptGroups>>) -> Result<Arc<dyn KeptGroups>, SpawnError>;

pub(crate) const SLOT_LIMITS: Option<SlotLimits> = Some(|limits, last| {
    check_limits(&limits)?;
    Ok(keep(limits, last)?)
});

fn check_limits(limits: &TreeLimits) -> Result<(), SpawnError> {
    match limits.mistake() {
        Some(mistake) => Err(SpawnError::bad(BadInput::TreeLimits(mistake))),
        None => Ok(()),
    }
}

impl From<NotLimited> for SpawnError {
    fn from(error: NotLimited) -> SpawnError {
        SpawnError::new(
            Step::TreeLimits,
            match error {
                NotLimited::Unavailable(limit) => io::Error::new(io::ErrorKind::Unsupported, limit),
                NotLimited::System(error) => error,
            },
        )
    }
}

/// A child below a supervisor: its number, its pidfd, and the processes that hold its tree.
pub(super) struct SupervisedChild {
    pub(super) pid: i32,
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) supervisor: Supervisor,
}

/// The shared input of the guard and the supervisor. Both copy the program out of it before another process
/// continues.
pub(super) struct StartContext<'a> {
    /// The command to start; `None` for the supervisor of a slot.
    pub(super) setup: Option<&'a ChildSetup<'a>>,
    /// The stacks of the supervisor and of the child.
    pub(super) stacks: [&'a Stack; 2],
    pub(super) program: SupervisorProgram,
    /// A pidfd of the guard, once it runs.
    pub(super) guard_pidfd: AtomicI32,
    /// The eventfd by which the guard reports that the program works, if that is not proven yet.
    pub(super) proof: AtomicI32,
    /// True once the program is proven to work; nothing is started before.
    pub(super) is_proven: AtomicBool,
    /// True if the host ignores SIGCHLD.
    pub(super) ignores_sigchld: AtomicBool,
}

fn start_below_supervisor(
    setup: &ChildSetup<'_>,
    cgroup: Option<&Cgroup>,
    groups: Option<&[CString]>,
    lives_on: bool,
) -> Result<SupervisedChild, SpawnError> {
    let create_error = |error| SpawnError::new(Step::Create, error);
    let image = image().map_err(no_image)?;
    check_handle_limit().map_err(create_error)?;
    let [for_guard, for_supervisor, for_child] = [take_stack()?, take_stack()?, take_stack()?];
    let is_proven = image::is_proven();
    let (reports, theirs, host_pidfd) = open_host_handles(!is_proven)
        .map_err(|error| if is_proven { create_error(error) } else { judge(error) })?;
    let program = SupervisorProgram::new(image, theirs.as_fd(), host_pidfd.as_fd(), cgroup, groups);
    let context = StartContext {
        setup: Some(setup),
        stacks: [&for_supervisor, &for_child],
        program: program.that_lives_on(lives_on),
        guard_pidfd: AtomicI32::new(NONE),
        proof: AtomicI32::new(NONE),
        is_proven: AtomicBool::new(is_proven),
        ignores_sigchld: AtomicBool::new(false),
    };
    // Until the child exists: a handler that ran on this thread would share its `errno`.
    let _blocked = AllBlocked::new();
    let (guard, guard_pidfd) = create_guard(&context, &for_guard, theirs, host_pidfd)?;
    let started = reports.started();
    let (guard, guard_exit) = hold_guard(guard, guard_pidfd);
    let failed = match (failure(setup), started) {
        (Some(failed), _) => failed,
        (None, Err(NotStarted::Supervisor(error))) if !is_lack(&error) => cannot_contain(error),
        (None, Err(NotStarted::Supervisor(error) | NotStarted::Command(error))) => {
            create_error(error)
        }
        (None, Err(NotStarted::Unknown(error))) => SpawnError::unknown(error),
        // Signals would go by a number that the supervisor may have freed.
        (None, Ok(StartedCommand { pidfd: None, .. })) => {
            SpawnError::unknown(io::Error::from_raw_os_error(libc::EMFILE))
        }
        (None, Ok(StartedCommand { pid, pidfd, supervisor })) => match guard {
            Some(guard) => {
                let reports = Arc::new(reports);
                let supervisor = Supervisor { reports, supervisor, guard, guard_exit };
                image::prove();
                return Ok(SupervisedChild { pid, pidfd, supervisor });
            }
            None => SpawnError::unknown(io::Error::other("its guard has no pidfd")),
        },
    };
    // The supervisor has ended, or gets the request to end now (a fork of this process may hold a copy, so
    // a drop would not be enough); the guard ends last. Ignored: it has been reaped elsewhere.
    reports.announce_end();
    release_groups(&reports);
    let guard_status = guard_exit.wait().map(|ended| ended.status);
    if context.is_proven.load(Relaxed) || is_lack(&failed.source) {
        return Err(failed);
    }
    match guard_status {
        // Another process has killed one of the two, which says nothing about this machine.
        Ok(status) if status.success() || status.signal() == Some(libc::SIGKILL) => Err(failed),
        Ok(status) => Err(image::error_of(status).map_or_else(judge, |()| failed)),
        Err(_) => Err(failed),
    }
}

/// Creates the guard, and closes the handles that only the new processes need. Returns its number and its pidfd.
///
/// The caller keeps the context and the stacks until the supervisor has executed its program.
pub(super) fn create_guard(
    context: &StartContext<'_>,
    stack: &Stack,
    theirs: OwnedFd,
    host_pidfd: OwnedFd,
) -> Result<(i32, Option<OwnedFd>), SpawnError> {
    let mut pidfd = NONE;
    let request = context.clone_request(stack, guard, Some(&raw mut pidfd));
    // SAFETY: nothing else uses the stack, and it is not reused before the guard has left it. The stack and
    // the context stay here until the child exists, which is after the guard has begun and has read the context
    // for the last time. `guard` never returns.
    let cloned = unsafe { clone::clone_without_waiting(&request) };
    let pidfd = own_pidfd(pidfd);
    // Closed here, so that the end of the others becomes visible: now only the guard, the supervisor and,
    // until its exec, the child hold this end.
    drop(theirs);
    // This makes room for the two handles that follow: if there was room at the beginning, there is room
    // until the end.
    drop(host_pidfd);
    match cloned {
        Ok(guard) => Ok((guard, pidfd)),
        Err(error) if is_lack(&error) => Err(SpawnError::new(Step::Create, error)),
        // The error is not about the command, so another kind of containment may work.
        Err(error) => Err(cannot_contain(error)),
    }
}

/// Holds the guard as a process to wait for, if it has a pidfd, and as a child to reap.
pub(super) fn hold_guard(pid: i32, pidfd: Option<OwnedFd>) -> (Option<Member>, ChildHandle) {
    let Some(pidfd) = pidfd.map(Arc::new) else {
        return (None, ChildHandle(exit::ChildHandle::new(pid, None)));
    };
    let member = Member::sharing(pid as u32, Arc::clone(&pidfd));
    (Some(member), ChildHandle(exit::ChildHandle::sharing(pid, pidfd)))
}

/// Creates the socket for reports, the supervisor's end of it, and a pidfd of this process. With `tries`,
/// also checks that this machine allows the calls that the host itself makes while it holds a tree: a
/// sandbox refuses a call before the kernel looks at its arguments.
pub(super) fn open_host_handles(tries: bool) -> io::Result<(Reports, OwnedFd, OwnedFd)> {
    let (reports, theirs) = Reports::pair()?;
    let host_pidfd = pidfd_open(getpid(), PidfdFlags::empty())?;
    if tries {
        send(host_pidfd.as_fd(), 0, 0)?;
        Reports::can_be_used(host_pidfd.as_fd())?;
    }
    Ok((reports, theirs, host_pidfd))
}

/// Returns the error of a start whose program failed, before it was known to work here. Remembers a refusal.
fn judge(error: io::Error) -> SpawnError {
    let error = image::judge(error);
    match error.raw_os_error() {
        None => SpawnError::new(Step::Contain, error),
        Some(_) if is_lack(&error) => SpawnError::new(Step::Create, error),
        Some(_) => cannot_contain(error),
    }
}

/// Returns the error for a tree that cannot be supervised. It has no number, because a number would be
/// about a cgroup.
pub(super) fn cannot_contain(error: io::Error) -> SpawnError {
    SpawnError::new(Step::Contain, io::Error::other(error))
}

/// Makes sure that neither the guard nor the supervisor runs out of handle numbers when it arranges its
/// handles: by then the command runs, and the host would not learn why it is killed.
///
/// # Errors
/// `EMFILE`: a number that they need may be above `RLIMIT_NOFILE`.
pub(super) fn check_handle_limit() -> io::Result<()> {
    // The target numbers, those above them to which the handles and the image are moved, and one to list the open ones.
    const NUMBERS: u64 = (HANDLES + (HANDLES + 1) + 1) as u64;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < NUMBERS => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        _ => Ok(()),
    }
}

/// Returns the error of a start for which there is no program.
pub(super) fn no_image(error: io::Error) -> SpawnError {
    let step = if is_lack(&error) { Step::Create } else { Step::Contain };
    SpawnError::new(step, error)
}

pub(super) fn take_stack() -> Result<Stack, SpawnError> {
    Stack::take().map_err(|error| SpawnError::new(Step::Create, error))
}

impl StartContext<'_> {
    fn clone_request<'a>(
        &'a self,
        stack: &'a Stack,
        entry: clone::EntryFn,
        pidfd: Option<*mut c_int>,
    ) -> CloneRequest<'a> {
        CloneRequest {
            stack,
            cgroup: None,
            must_be_born_in_cgroup: false,
            after_clone3: entry,
            after_clone: entry,
            argument: ptr::from_ref(self).cast_mut().cast(),
            pidfd,
        }
    }
}

/// Runs in the guard until it executes the program.
extern "C" fn guard(argument: *mut c_void) -> c_int {
    // SAFETY: the host keeps the context where it is until the child exists.
    let context = unsafe { &*argument.cast_const().cast::<StartContext<'_>>() };
    let mut program = context.program;
    // The supervisor inherits this setting; the command has to find the host's.
    context.ignores_sigchld.store(raw_syscall::reset_sigchld(), Relaxed);
    program.handles[PLANS] = NONE;
    let errno = match start_supervisor(context, &mut program) {
        Ok(pid) => {
            let errno = program.execute(c"guard", pid);
            // The supervisor must not run without a guard.
            if !raw_syscall::kill(pid) {
                // It may be waiting for a proof, and so for the end of this process.
                raw_syscall::exit(errno)
            }
            errno
        }
        Err(errno) => {
            program.report_failure(errno);
            errno
        }
    };
    end_children(program.handles[CHILDREN]);
    raw_syscall::exit(errno)
}

/// Starts the supervisor. From then on only the supervisor may use the context.
fn start_supervisor(
    context: &StartContext<'_>,
    program: &mut SupervisorProgram,
) -> Result<i32, i32> {
    open_children_list(program)?;
    context.guard_pidfd.store(raw_syscall::open_own_pidfd()?, Relaxed);
    let [stack, _] = context.stacks;
    let request = context.clone_request(stack, supervisor, None);
    if !context.is_proven.load(Relaxed) {
        raw_syscall::probe_send()?;
        program.handles[PROOF] = raw_syscall::open_eventfd()?;
        context.proof.store(program.handles[PROOF], Relaxed);
        // Without waiting for its exec: the supervisor waits for the result of the guard.
        // SAFETY: as in `start`.
        let cloned = unsafe { clone::clone_without_waiting(&request) };
        return cloned.map_err(|error| errno_of(&error));
    }
    // Wait until the supervisor has left the shared memory: on few processors the guard would otherwise
    // load its program while the supervisor needs the processor to start the command.
    // SAFETY: as in `start`.
    let cloned = unsafe { clone::vfork_unattended(&request) };
    cloned.map_err(|error| errno_of(&error))
}

/// Runs in the supervisor until it executes the program.
extern "C" fn supervisor(argument: *mut c_void) -> c_int {
    // SAFETY: as in `guard`.
    let context = unsafe { &*argument.cast_const().cast::<StartContext<'_>>() };
    let mut program = context.program;
    program.handles[GUARD_PIDFD] = context.guard_pidfd.load(Relaxed);
    let started = match context.setup {
        Some(setup) => start_command(context, setup, &mut program),
        None => {
            open_children_list(&mut program).and_then(|()| Err(program.execute(c"commands", 0)))
        }
    };
    match started {
        // From here on the context must not be used.
        Ok(Some(pid)) => {
            raw_syscall::yield_processor();
            program.execute(c"supervisor", pid);
            raw_syscall::kill(pid);
        }
        // The command failed on its own, or was killed, and the host knows.
        Ok(None) => {}
        Err(errno) => program.report_failure(errno),
    }
    // A command that was started may have left processes already.
    end_children(program.handles[CHILDREN]);
    raw_syscall::exit(0)
}

/// Starts the command. Returns its number if it runs, once the host has been informed.
fn start_command(
    context: &StartContext<'_>,
    setup: &ChildSetup<'_>,
    program: &mut SupervisorProgram,
) -> Result<Option<i32>, i32> {
    open_children_list(program)?;
    if !context.is_proven.load(Relaxed) {
        wait_for_proof(context)?;
    }
    setup.steps.ignores_sigchld.set(context.ignores_sigchld.load(Relaxed));
    let [_, stack] = context.stacks;
    let (pid, pidfd) = match clone::create(setup, stack) {
        Ok(created) => created,
        Err(error) => return program.report_start(0, None, errno_of(&error)).map(|()| None),
    };
    let failed = setup.errno.load(Relaxed);
    let reported = program.report_start(pid, pidfd.as_ref(), failed);
    // The exec closes it; closing it here would go through the C library.
    mem::forget(pidfd);
    if let Err(errno) = reported {
        raw_syscall::kill(pid);
        // If it has failed, the host knows by the memory that they share.
        program.report_unknown(errno);
        return Ok(None);
    }
    Ok((failed == 0).then_some(pid))
}

/// Prepares this process to adopt and find children. Before any exists: the command may lose children in its first
/// moment, and may mount anything on `/proc`.
fn open_children_list(program: &mut SupervisorProgram) -> Result<(), i32> {
    raw_syscall::become_subreaper();
    program.handles[CHILDREN] = raw_syscall::open_children()?;
    Ok(())
}

/// Waits until the guard has found out that the program works here.
fn wait_for_proof(context: &StartContext<'_>) -> Result<(), i32> {
    let [proof, guard_pidfd] = [&context.proof, &context.guard_pidfd].map(|fd| fd.load(Relaxed));
    raw_syscall::wait_for_eventfd(proof, guard_pidfd)?;
    context.is_proven.store(true, Relaxed);
    Ok(())
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_by_the_cgroup_count_as_cgroup_errors() {
        let about = |step, errno: Errno| cgroup_errno(&SpawnError::new(step, errno.into()));
        for errno in [Errno::ACCESS, Errno::BUSY, Errno::OPNOTSUPP] {
            assert_eq!(about(Step::Create, errno), Some(errno));
            assert_eq!(about(Step::Contain, errno), Some(errno));
        }
        for errno in [Errno::INVAL, Errno::NOSYS, Errno::PERM, Errno::AGAIN, Errno::NOMEM] {
            assert_eq!(about(Step::Create, errno), None, "clone itself says so");
        }
        assert_eq!(about(Step::Contain, Errno::MFILE), None);
        assert_eq!(about(Step::Exec, Errno::ACCESS), None);
        let message = SpawnError::new(Step::Contain, io::Error::other("no supervisor"));
        assert_eq!(cgroup_errno(&message), None);
    }
}
