//! The child's half of a start: what the host has beside the steps that a supervisor has too (`nolibc/steps.rs`), and their order.
//!
//! Here too nothing allocates, locks, panics or unwinds, and each call is made by its number. The C library's calls that change
//! credentials would change every thread of the parent.

use std::ffi::c_char;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use super::open_handles;
use super::raw_syscall::syscall;
use crate::base::test_hooks::{Forced, is_forced};
use crate::process::nolibc::call::call;
use crate::process::nolibc::steps::{self, Failed, Stdio, Steps, bit, check};
use crate::process::nolibc::{number, step};
use crate::process::spawn::pre_exec::{self, Closure};
use crate::process::spawn::{Credentials, UnixOptions, UnsetGroups};

/// Everything that the child needs, made before the child exists.
pub(in crate::process::spawn) struct ChildSetup<'a> {
    pub(super) steps: Steps<'a>,
    pub(super) close_others: bool,
    pub(super) options: &'a UnixOptions,
    pub(super) unset_groups: UnsetGroups,
    /// A string, or null.
    pub(super) chroot: *const c_char,
    /// The cgroup to be born in, and the file that a child which was not born there writes to.
    pub(super) cgroup: Option<RawFd>,
    pub(super) cgroup_procs: Option<RawFd>,
    /// The process whose end kills the child: this one. 0: none.
    pub(super) parent_pid: i32,
    /// The step that failed, and its error: written by the child, read by the parent. 0 is success.
    pub(super) failed_step: AtomicU32,
    pub(super) errno: AtomicI32,
    /// True if the child runs and shares the parent's memory.
    pub(super) has_begun: AtomicBool,
    /// The pipe for the report of a child that may not share the parent's memory. Negative: none.
    pub(super) report_to: AtomicI32,
    /// True if the program or the working directory is named by a handle of the parent.
    pub(super) names_handle: bool,
    /// True if the child may close the handles that it does not inherit before it executes the program.
    pub(super) may_close_early: AtomicBool,
    /// True if the child may begin with the parent's handles themselves, and if it does: it copies those that it needs.
    pub(super) may_share_handles: AtomicBool,
    pub(super) shares_handles: AtomicBool,
}

/// A failed step and its error, as bytes for a pipe.
pub(super) type FailureReport = [u8; 8];

// SAFETY: a setup is passed to the spawner thread while its caller waits: one thread at a time uses the cells
// and follows the pointers.
unsafe impl Sync for ChildSetup<'_> {}

impl ChildSetup<'_> {
    /// Clears the results of an earlier attempt.
    pub(super) fn reset(&self, may_retry: bool, may_share_handles: bool, may_close_early: bool) {
        self.steps.may_retry.set(may_retry);
        self.steps.shares_memory.set(false);
        self.may_share_handles.store(may_share_handles, Ordering::Relaxed);
        self.may_close_early.store(may_close_early, Ordering::Relaxed);
        self.shares_handles.store(false, Ordering::Relaxed);
        self.failed_step.store(0, Ordering::Relaxed);
        self.errno.store(0, Ordering::Relaxed);
        self.has_begun.store(false, Ordering::Relaxed);
        self.report_to.store(-1, Ordering::Relaxed);
    }

    fn fail(&self, (step, errno): Failed) {
        self.failed_step.store(step, Ordering::Relaxed);
        self.errno.store(errno, Ordering::Relaxed);
        let pipe = self.report_to.load(Ordering::Relaxed);
        if pipe >= 0 {
            let report = ((u64::from(step) << 32) | u64::from(errno as u32)).to_ne_bytes();
            let place = report.as_ptr() as usize;
            call(number::WRITE, [pipe as usize, place, report.len(), 0, 0, 0]);
        }
    }

    /// Records the report that a child sent through the pipe.
    pub(super) fn record(&self, report: FailureReport) {
        let report = u64::from_ne_bytes(report);
        self.failed_step.store((report >> 32) as u32, Ordering::Relaxed);
        self.errno.store(report as i32, Ordering::Relaxed);
    }

    /// Returns true if the child needs no handle but the standard streams of its parent.
    ///
    /// Only such a child shares the handles. One of the others may have been closed by other code, and its number may belong
    /// to the pidfd by now.
    pub(super) fn needs_no_handles(&self) -> bool {
        let is_standard =
            |source: &Stdio| !matches!(source, Stdio::From(fd) if *fd > libc::STDERR_FILENO);
        let Steps { stdio, moves, groups, foreground, own_terminal, .. } = &self.steps;
        let has_terminal = foreground.is_some() || own_terminal.is_some();
        stdio.iter().all(is_standard) && moves.is_empty() && groups.is_empty() && !has_terminal
    }

    /// Returns true if the child closes what it does not inherit before the exec.
    fn closes_early(&self, scope: CredentialScope) -> bool {
        let has_report = self.report_to.load(Ordering::Relaxed) >= 0;
        let is_child = scope == CredentialScope::Child;
        self.may_close_early.load(Ordering::Relaxed) && is_child && !has_report
    }

    pub(super) fn changes_identity(&self) -> bool {
        self.options.identity != Credentials::default()
    }
}

/// A substitute for an errno: the child could not copy the handles that it shares. It has changed none.
pub(super) const HANDLES_SHARED: i32 = i32::MAX - 1;

/// The signal handlers that the child starts with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Handlers {
    /// The defaults, and ignored signals: by `CLONE_CLEAR_SIGHAND`.
    Reset,
    /// The parent's functions.
    Inherited,
}

/// Runs in the child and never returns.
///
/// # Safety
/// The caller is a new process on its own stack, and `setup` stays alive until exec or exit.
pub(super) unsafe fn run(setup: &ChildSetup<'_>, handlers: Handlers) -> ! {
    setup.has_begun.store(true, Ordering::Relaxed);
    setup.steps.shares_memory.set(true);
    let cgroup = match handlers {
        // clone3 created the child inside the cgroup.
        Handlers::Reset => None,
        Handlers::Inherited => {
            reset_handlers();
            setup.cgroup_procs
        }
    };
    // Only the signals that a terminal or a program sends to a whole group: each takes two calls.
    steps::die_without_dump(bit(libc::SIGQUIT as usize) | bit(libc::SIGABRT as usize));
    let highest = cgroup.unwrap_or(libc::STDERR_FILENO);
    if setup.shares_handles.load(Ordering::Relaxed) && !unshare_handles(highest) {
        setup.fail((step::CLOSE_OTHERS, HANDLES_SHARED));
    } else {
        // SAFETY: as this function's.
        setup.fail(unsafe { attempt(setup, cgroup, CredentialScope::Child, &mut []) });
    }
    loop {
        // This touches nothing that belongs to the parent (no atexit, no flush).
        call(number::EXIT_GROUP, [127, 0, 0, 0, 0, 0]);
    }
}

/// Runs like [`run`], in a forked child. The child has its own memory, so this function returns, with the
/// failure in a setup that the parent does not see.
///
/// # Safety
/// Call this only in a forked process. `setup`'s pointers must be valid.
pub(super) unsafe fn run_forked(setup: &ChildSetup<'_>, closures: &mut [Closure]) {
    // A closure may unblock signals, and the parent's handlers are not prepared to run in two processes.
    reset_handlers();
    // SAFETY: as this function's.
    setup.fail(unsafe { attempt(setup, setup.cgroup_procs, CredentialScope::Child, closures) });
}

/// Applies the plan to this process and executes the program. Returns if something failed. Then SIGPIPE has
/// its earlier action again: a write to a closed pipe must not end this process if it did not before.
///
/// # Safety
/// This changes the calling process. `setup`'s pointers must be valid.
pub(super) unsafe fn become_program(setup: &ChildSetup<'_>, closures: &mut [Closure]) {
    const SIGPIPE: usize = libc::SIGPIPE as usize;
    let before = steps::action_of(SIGPIPE);
    // SAFETY: as this function's.
    setup.fail(unsafe { attempt(setup, None, CredentialScope::Process, closures) });
    if let Some(action) = before {
        steps::set_action(SIGPIPE, &action);
    }
}

/// Applies the plan and executes the program. Returns the failure.
///
/// # Safety
/// As for [`become_program`].
unsafe fn attempt(
    setup: &ChildSetup<'_>,
    cgroup: Option<RawFd>,
    scope: CredentialScope,
    closures: &mut [Closure],
) -> Failed {
    // SAFETY: as this function's.
    match unsafe { prepare(setup, cgroup, scope, closures) } {
        Ok(()) => (step::EXEC, steps::execute(&setup.steps, closures.is_empty())),
        Err(failed) => failed,
    }
}

/// # Safety
/// As for [`become_program`].
unsafe fn prepare(
    setup: &ChildSetup<'_>,
    cgroup: Option<RawFd>,
    scope: CredentialScope,
    closures: &mut [Closure],
) -> Result<(), Failed> {
    let closes_early = setup.closes_early(scope) && closures.is_empty();
    if setup.close_others && !closes_early {
        close_others()?;
    }
    steps::enter(&setup.steps, cgroup.map(|procs| (procs, step::CONTAIN)))?;
    change_root(setup.chroot)?;
    change_identity(&setup.options.identity, setup.unset_groups, scope)?;
    steps::enter_directory(&setup.steps)?;
    if scope == CredentialScope::Child && setup.parent_pid != 0 {
        die_with_parent(setup.parent_pid)?;
    }
    if !closures.is_empty() {
        // A closure may change the mask, so it is set before the closures run, and not again afterwards.
        steps::set_mask(setup.steps.mask);
        pre_exec::run(closures).map_err(|errno| (step::PRE_EXEC, errno))?;
    }
    // Before the exec, which wakes the parent some time before it closes them: they keep other threads' pipes open.
    if closes_early {
        let inherited = setup.steps.moves.iter().map(|place| place.to);
        open_handles::close_from(libc::STDERR_FILENO + 1, inherited).or_else(|_| close_others())?;
    }
    Ok(())
}

/// Resets all handlers: one of the parent's would run in a second process that shares its memory.
fn reset_handlers() {
    for signal in 1..=64 {
        let handler = steps::action_of(signal).map(|[handler, ..]| handler);
        if handler.is_some_and(|it| it != steps::DEFAULT && it != steps::IGNORED) {
            steps::set_handler(signal, steps::DEFAULT);
        }
    }
}

/// Copies the handles up to a number from those that the child shares with its parent. Returns false if the system
/// refuses; then they are still shared.
///
/// A child that is created with a copy of all handles takes longer the more its parent has: 0.2 ms for each thousand.
fn unshare_handles(highest: RawFd) -> bool {
    // The flag is as old as the call, Linux 5.9. Nothing is closed in the parent.
    let is_closed = !is_forced(Forced::NoCloseRange)
        && close_range(highest + 1, libc::CLOSE_RANGE_UNSHARE).is_ok();
    is_closed || syscall(libc::SYS_unshare, [libc::CLONE_FILES as usize, 0, 0, 0, 0, 0]).is_ok()
}

/// Marks all handles from 3 on close-on-exec. Those that the child gets are copies, and are made later.
fn close_others() -> Result<(), Failed> {
    // The flag exists since Linux 5.11.
    if !is_forced(Forced::NoCloseRange) && close_range(3, libc::CLOSE_RANGE_CLOEXEC).is_ok() {
        return Ok(());
    }
    open_handles::each_open(|fd| {
        if fd > libc::STDERR_FILENO {
            const CLOEXEC: usize = libc::FD_CLOEXEC as usize;
            // Ignored: the only error is that it is not open.
            call(number::FCNTL, [fd as usize, libc::F_SETFD as usize, CLOEXEC, 0, 0, 0]);
        }
    })
    .map_err(|errno| (step::CLOSE_OTHERS, errno))
}

fn close_range(first: RawFd, flags: libc::c_uint) -> Result<usize, i32> {
    let all = [first as usize, libc::c_uint::MAX as usize, flags as usize, 0, 0, 0];
    syscall(libc::SYS_close_range, all)
}

/// Changes the root directory to that of a string, or does nothing for null.
fn change_root(root: *const c_char) -> Result<(), Failed> {
    if root.is_null() {
        return Ok(());
    }
    check(call(libc::SYS_chroot as usize, [root as usize, 0, 0, 0, 0, 0]), step::CHROOT)?;
    // A working directory outside the new root is a way out of it (chroot(2)), and a relative one that
    // follows is meant to be inside.
    check(call(number::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]), step::CHROOT)
}

/// The threads whose user and groups change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CredentialScope {
    /// The single thread of a child. The C library's calls would change every thread of the parent.
    Child,
    /// All threads of this process, which continues if the exec fails (nptl(7)).
    Process,
}

fn change_identity(
    identity: &Credentials,
    unset: UnsetGroups,
    scope: CredentialScope,
) -> Result<(), Failed> {
    if let Some(groups) = &identity.groups {
        set_groups(groups, scope)?;
    } else if unset != UnsetGroups::Kept {
        match set_groups(&[], scope) {
            Err((_, libc::EPERM)) if unset == UnsetGroups::DroppedIfPermitted => {}
            dropped => dropped?,
        }
    }
    if let Some(group) = identity.group {
        let result = match scope {
            CredentialScope::Child => {
                call(libc::SYS_setgid as usize, [group as usize, 0, 0, 0, 0, 0])
            }
            // SAFETY: numbers.
            CredentialScope::Process => of_library(unsafe { libc::setgid(group) }),
        };
        check(result, step::IDENTITY)?;
    }
    if let Some(user) = identity.user {
        let result = match scope {
            CredentialScope::Child => {
                call(libc::SYS_setuid as usize, [user as usize, 0, 0, 0, 0, 0])
            }
            // SAFETY: numbers.
            CredentialScope::Process => of_library(unsafe { libc::setuid(user) }),
        };
        check(result, step::IDENTITY)?;
    }
    Ok(())
}

fn set_groups(groups: &[u32], scope: CredentialScope) -> Result<(), Failed> {
    let (count, first) = (groups.len(), groups.as_ptr());
    let result = match scope {
        CredentialScope::Child => {
            call(libc::SYS_setgroups as usize, [count, first as usize, 0, 0, 0, 0])
        }
        // SAFETY: an array of that length.
        CredentialScope::Process => of_library(unsafe { libc::setgroups(count, first) }),
    };
    check(result, step::IDENTITY)
}

/// Returns the result of a call of the C library as the kernel would.
fn of_library(result: libc::c_int) -> isize {
    match result {
        0.. => result as isize,
        _ => -(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize),
    }
}

/// Makes the child die with its parent. Runs after the change of user, which would clear the setting
/// (prctl(2), PR_SET_PDEATHSIG).
fn die_with_parent(parent: i32) -> Result<(), Failed> {
    let death = [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0, 0, 0];
    check(call(number::PRCTL, death), step::PARENT_DEATH)?;
    // The parent may have ended before the setting; then the signal would never be sent.
    // 0: the parent is in another pid namespace and invisible from here.
    let now = call(libc::SYS_getppid as usize, [0; 6]) as i32;
    if now != parent && now != 0 {
        return Err((step::PARENT_DEATH, libc::ESRCH));
    }
    Ok(())
}
