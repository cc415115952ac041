//! The code that runs between fork and exec, for a child that `posix_spawn` alone cannot create.
//!
//! It runs as the only thread of a copy of this process, whose other threads may have held any lock at the
//! time of the copy. So nothing here allocates, locks, panics or unwinds. It calls only functions that are
//! "async-signal safe" (sigaction(2)), and `posix_spawn`, which is a system call and the layout of its
//! arguments on the stack.

use std::ffi::c_char;
use std::fs::File;
use std::io::{self, Read as _};
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use super::actions::{Actions, SpawnAttributes, posix_spawn};
use super::moves::HandleMoves;
use super::search::{errno, first};
use super::{Layout, is_path};
use crate::base::signal::AllBlocked;
use crate::process::spawn::groups::with_effective_first;
use crate::process::spawn::pre_exec::{self, AbortOnPanic, Closure};
use crate::process::spawn::{
    Credentials, Group, Plan, Resource, ResourceLimit, SpawnError, Step, UnsetGroups, steps,
};
use crate::process::wait4::wait4;

/// Everything that the child needs, made before the child exists.
pub(super) struct ChildSetup<'a> {
    plan: &'a Plan<'a>,
    unset_groups: UnsetGroups,
    /// The groups to set, the effective one first.
    groups: Option<Vec<u32>>,
    chroot: *const c_char,
    current_dir: *const c_char,
    candidates: *const *const c_char,
    searches: bool,
    argv: *const *const c_char,
    envp: *const *const c_char,
    moves: &'a HandleMoves,
    actions: &'a Actions,
    /// The signal mask to set before closures run.
    mask: libc::sigset_t,
    /// The attributes, with `POSIX_SPAWN_SETEXEC`.
    attributes: &'a SpawnAttributes,
}

impl<'a> ChildSetup<'a> {
    pub(super) fn new(
        plan: &'a Plan<'a>,
        layout: &'a Layout,
        moves: &'a HandleMoves,
        actions: &'a Actions,
        attributes: &'a SpawnAttributes,
    ) -> ChildSetup<'a> {
        ChildSetup {
            plan,
            unset_groups: plan.unix.unset_groups(),
            groups: plan.unix.identity.groups.as_ref().map(|groups| {
                let own = || rustix::process::getegid().as_raw();
                with_effective_first(plan.unix.identity.group.unwrap_or_else(own), groups)
            }),
            chroot: layout.chroot(),
            current_dir: layout.current_dir(),
            candidates: layout.candidates(),
            searches: !is_path(plan.program),
            argv: layout.argv(),
            envp: layout.envp(),
            moves,
            actions,
            mask: super::mask(plan),
            attributes,
        }
    }
}

/// Nothing: the code that forks is always present, for options that `posix_spawn` lacks.
pub(in crate::process::spawn) type Fork = ();

pub(in crate::process::spawn) const FORK: Fork = ();

/// A step that failed, and its errno.
type FailedStep = (Step, i32);

/// The size of a child's report of a failure: the step and the errno.
const REPORT_BYTES: usize = 8;

/// Forks a child, and returns when it has loaded its program, or has ended without.
#[expect(
    clippy::disallowed_methods,
    reason = "only fork leaves a process that can change its user and its limits before exec"
)]
pub(super) fn start(setup: &ChildSetup<'_>) -> Result<i32, SpawnError> {
    let create_error = |error| SpawnError::new(Step::Create, error);
    let (read, made) = crate::base::raw_pipe::pipe().map_err(create_error)?;
    // The file actions run before the last step that can fail, and must not overwrite the pipe.
    let write = setup.moves.copy_off_targets(&made).map_err(create_error)?;
    drop(made);
    let mut locked = setup.plan.unix.pre_exec.lock();
    let closures = locked.as_mut().map_or(&mut [][..], |locked| &mut locked.closures);
    let pid = {
        // Without this, a signal that arrived in the child before exec would run a handler of this program
        // there.
        let _blocked = AllBlocked::new();
        // SAFETY: the child runs only the code of this module, and never returns from here.
        match unsafe { libc::fork() } {
            -1 => return Err(create_error(io::Error::last_os_error())),
            // SAFETY: this is the child.
            0 => unsafe { run(setup, closures, write.as_raw_fd()) },
            pid => pid,
        }
    };
    // The child has the last copy now, which exec closes.
    drop(write);
    let mut report = [0; REPORT_BYTES];
    // An end before a whole report is an exec, or a child that was killed earlier; its status shows that.
    if File::from(read).read_exact(&mut report).is_err() {
        return Ok(pid);
    }
    // It has exited; leave no zombie. Ignored: it has been reaped elsewhere.
    let _ = wait4(pid, 0);
    let [a, b, c, d, e, f, g, h] = report;
    let (step, errno) = (u32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]));
    Err(SpawnError::new(steps::step_of(step), io::Error::from_raw_os_error(errno)))
}

/// Runs in the child and never returns.
///
/// # Safety
/// Call this only in a forked process of one thread.
unsafe fn run(setup: &ChildSetup<'_>, closures: &mut [Closure], report_to: RawFd) -> ! {
    let no_unwinding = AbortOnPanic;
    // SAFETY: a forked process of one thread, which exists only to become the program.
    let (step, errno) = unsafe { become_program(setup, closures) };
    mem::forget(no_unwinding);
    let [a, b, c, d] = steps::number_of(step).to_ne_bytes();
    let [e, f, g, h] = errno.to_ne_bytes();
    let report: [u8; REPORT_BYTES] = [a, b, c, d, e, f, g, h];
    // Ignored: without the report the parent still gets the exit code. At most PIPE_BUF: all or nothing.
    // SAFETY: an open pipe, and that many bytes.
    unsafe { libc::write(report_to, report.as_ptr().cast(), REPORT_BYTES) };
    // SAFETY: ends this process without touching the parent's resources (no atexit, no flush).
    unsafe { libc::_exit(127) }
}

/// Applies the plan to this process and executes the program. Returns the failure.
///
/// # Safety
/// This changes the calling process. The setup's pointers must be valid.
pub(super) unsafe fn become_program(
    setup: &ChildSetup<'_>,
    closures: &mut [Closure],
) -> FailedStep {
    // SAFETY: as this function's.
    let prepared = unsafe { prepare(setup) }.and_then(|()| run_closures(setup, closures));
    match prepared {
        Err(failed) => failed,
        // SAFETY: as this function's.
        Ok(()) => unsafe { load(setup) },
    }
}

/// Applies the plan, up to the closures.
///
/// # Safety
/// As for [`become_program`].
unsafe fn prepare(setup: &ChildSetup<'_>) -> Result<(), FailedStep> {
    let options = setup.plan.unix;
    // Here, and not by an attribute: those are applied when it is too late to report an error.
    join_group(options.group)?;
    if options.group == Group::Session {
        take_terminal(setup.plan)?;
    }
    set_limits(&options.limits)?;
    if let Some(mask) = options.umask {
        // SAFETY: a number; umask has no error.
        unsafe { libc::umask(mask as libc::mode_t) };
    }
    if let Some(add) = options.nice {
        add_nice(add)?;
    }
    if !setup.chroot.is_null() {
        // SAFETY: a C string.
        check(unsafe { libc::chroot(setup.chroot) }, Step::Chroot)?;
        // A working directory outside the new root is a way out of it, and a relative one that follows is
        // meant to be inside.
        // SAFETY: a C string.
        check(unsafe { libc::chdir(c"/".as_ptr()) }, Step::Chroot)?;
    }
    change_identity(&options.identity, setup.groups.as_deref(), setup.unset_groups)?;
    if !setup.current_dir.is_null() {
        // After the change of user, as in std: that user must be allowed to enter the directory. By a call
        // of its own, so that it happens once for any number of candidates.
        // SAFETY: a C string.
        check(unsafe { libc::chdir(setup.current_dir) }, Step::CurrentDir)?;
    }
    Ok(())
}

/// Places the handles and runs the closures. The closures may use and change the handles, so those come
/// first; the file actions, which run when the program is loaded, then only keep them open.
fn run_closures(setup: &ChildSetup<'_>, closures: &mut [Closure]) -> Result<(), FailedStep> {
    if closures.is_empty() {
        return Ok(());
    }
    setup.moves.place()?;
    // SAFETY: a live set; SIG_SETMASK with it has no error.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const setup.mask, ptr::null_mut()) };
    pre_exec::run(closures).map_err(|errno| (Step::PreExec, errno))
}

/// Executes the program.
///
/// # Safety
/// As for [`become_program`].
unsafe fn load(setup: &ChildSetup<'_>) -> FailedStep {
    let exec = |path| {
        // SAFETY: a candidate, and arrays that the layout owns, each ended by NULL.
        unsafe { posix_spawn(path, setup.actions, setup.attributes, setup.argv, setup.envp) }
    };
    // SAFETY: an array that the layout owns, ended by NULL.
    match unsafe { first(setup.candidates, setup.searches, exec) } {
        // Cannot happen: the process would execute another program.
        Ok(_) => (Step::Exec, libc::EIO),
        Err(errno) => (Step::Exec, errno),
    }
}

fn join_group(group: Group) -> Result<(), FailedStep> {
    let result = match group {
        Group::Same => 0,
        // SAFETY: numbers; 0 is this process.
        Group::Own => unsafe { libc::setpgid(0, 0) },
        // SAFETY: as above.
        Group::Join(group) => unsafe { libc::setpgid(0, group) },
        // SAFETY: no argument.
        Group::Session => unsafe { libc::setsid() },
    };
    check(result, Step::Group)
}

/// Makes the plan's terminal the controlling one of the session that this process leads.
fn take_terminal(plan: &Plan<'_>) -> Result<(), FailedStep> {
    let Some(terminal) = plan.terminal.and_then(|terminal| terminal.handle()) else {
        return Ok(());
    };
    let terminal = terminal.as_raw_fd();
    // SAFETY: numbers.
    check(unsafe { libc::ioctl(terminal, libc::TIOCSCTTY as libc::c_ulong, 0) }, Step::Terminal)
}

fn set_limits(limits: &[ResourceLimit]) -> Result<(), FailedStep> {
    for (index, limit) in limits.iter().enumerate() {
        let hard = limit.hard.unwrap_or(libc::RLIM_INFINITY);
        let mut soft = limit.soft.unwrap_or(libc::RLIM_INFINITY);
        if limit.resource == Resource::OpenFiles {
            /// The kernel accepts no higher value, nor "no limit" (setrlimit(2), COMPATIBILITY).
            const OPEN_MAX: u64 = 10240;
            if limit.soft.is_none() {
                soft = hard.min(OPEN_MAX);
            }
        }
        let value = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: a live value.
        let result = unsafe { libc::setrlimit(resource(limit.resource), &raw const value) };
        check(result, Step::Limit(index))?;
    }
    Ok(())
}

fn resource(resource: Resource) -> libc::c_int {
    match resource {
        Resource::AddressSpace => libc::RLIMIT_AS,
        Resource::CoreDump => libc::RLIMIT_CORE,
        Resource::CpuTime => libc::RLIMIT_CPU,
        Resource::Data => libc::RLIMIT_DATA,
        Resource::FileSize => libc::RLIMIT_FSIZE,
        Resource::LockedMemory => libc::RLIMIT_MEMLOCK,
        Resource::OpenFiles => libc::RLIMIT_NOFILE,
        Resource::Processes => libc::RLIMIT_NPROC,
        Resource::Stack => libc::RLIMIT_STACK,
    }
}

fn add_nice(add: i32) -> Result<(), FailedStep> {
    /// The number that stands for this process.
    const SELF: libc::id_t = 0;
    // It cannot fail for this process. -1 is a valid result (getpriority(2)).
    // SAFETY: numbers.
    let now = unsafe { libc::getpriority(libc::PRIO_PROCESS, SELF) };
    let nice = now.saturating_add(add).clamp(-20, 20);
    // SAFETY: numbers.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, SELF, nice) }, Step::Nice)
}

fn change_identity(
    identity: &Credentials,
    groups: Option<&[u32]>,
    unset: UnsetGroups,
) -> Result<(), FailedStep> {
    if let Some(groups) = groups {
        let count = groups.len() as libc::c_int;
        // SAFETY: an array of that length.
        check(unsafe { libc::setgroups(count, groups.as_ptr()) }, Step::Identity)?;
    } else if unset != UnsetGroups::Kept {
        // SAFETY: an empty array.
        let dropped = check(unsafe { libc::setgroups(0, ptr::null()) }, Step::Identity);
        if unset == UnsetGroups::Dropped || dropped != Err((Step::Identity, libc::EPERM)) {
            dropped?;
        }
    }
    if let Some(group) = identity.group {
        // SAFETY: numbers.
        check(unsafe { libc::setgid(group) }, Step::Identity)?;
    }
    if let Some(user) = identity.user {
        // SAFETY: numbers.
        check(unsafe { libc::setuid(user) }, Step::Identity)?;
    }
    Ok(())
}

fn check(result: libc::c_int, step: Step) -> Result<(), FailedStep> {
    if result < 0 { Err((step, errno())) } else { Ok(()) }
}
