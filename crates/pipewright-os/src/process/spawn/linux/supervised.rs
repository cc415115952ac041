//! Starts a child below a supervisor: host, guard, supervisor, child.
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
//! (`supervisor/slot.rs`).
//!
//! The first start in a process finds out if this machine lets the program run and work. In that start the
//! guard executes the program first, and the supervisor starts nothing before the guard has reported that
//! it works.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

use super::child::ChildSetup;
use super::clone::{self, CloneRequest};
use super::stack::Stack;
use super::supervisor_program::{
    CHILDREN, GUARD_PIDFD, HANDLES, NONE, PLANS, PROOF, SupervisorProgram,
};
use super::{SpawnError, Step, failure, own_pidfd, raw_syscall};
use crate::base::signal::AllBlocked;
use crate::process::child::{ChildHandle, linux as exit};
use crate::process::contain::linux::cgroup::Cgroup;
use crate::process::contain::linux::image::{self, image};
use crate::process::contain::linux::report::{NotStarted, Reports, StartedCommand};
use crate::process::contain::linux::{Supervisor, release_groups};
use crate::process::member::Member;
use crate::process::nolibc::children::end_children;
use crate::process::pidfd::send;
use crate::process::room::is_lack;
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};

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

pub(super) fn start(
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
        // Signals would go by a number that the supervisor may have freed.
        (None, Ok(StartedCommand { pidfd: None, .. })) => {
            create_error(io::Error::from_raw_os_error(libc::EMFILE))
        }
        (None, Ok(StartedCommand { pid, pidfd, supervisor })) => match guard {
            Some(guard) => {
                let reports = Arc::new(reports);
                let supervisor = Supervisor { reports, supervisor, guard, guard_exit };
                image::prove();
                return Ok(SupervisedChild { pid, pidfd, supervisor });
            }
            None => create_error(io::ErrorKind::Unsupported.into()),
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
    // The handles are moved above all target numbers; at worst all of them are there already.
    const NUMBERS: u64 = (HANDLES + 2 * (HANDLES + 1)) as u64;
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
        // The command failed on its own, and the host knows.
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
    if reported.is_err() {
        raw_syscall::kill(pid);
    }
    reported.map(|()| (failed == 0).then_some(pid))
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
    if !raw_syscall::wait_for_eventfd(proof, guard_pidfd) {
        return Err(libc::EPERM);
    }
    context.is_proven.store(true, Relaxed);
    Ok(())
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
