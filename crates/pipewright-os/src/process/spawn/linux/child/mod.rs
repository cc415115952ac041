//! The child's half of a start: the code that runs between clone and exec.
//!
//! The child shares the memory of the parent, and the thread-local storage of the thread that starts it.
//! This thread sleeps meanwhile, or, if a supervisor creates the child, waits for its message; the other
//! threads run. So nothing here allocates, locks, panics or unwinds. Calls that are cancellation points are
//! made as raw system calls, and so are calls that change credentials (the C library's would change every
//! thread of the parent).
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the order of the steps, and the search for the program |
//! | `handles.rs` | stdio and the inherited list |
//! | `rights.rs` | group, limits, root directory, user, death with the parent |
//! | `signals.rs` | mask and handlers |

mod handles;
mod rights;
mod signals;

use std::cell::Cell;
use std::ffi::c_char;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::process::spawn::pre_exec::{self, Closure};
use crate::process::spawn::{Credentials, Step, UnixOptions, UnsetGroups, steps};
use rights::CredentialScope;
pub(super) use rights::resource as resource_number;

/// Everything that the child needs, made before the child exists.
pub(in crate::process::spawn) struct ChildSetup<'a> {
    pub(super) stdio: [Option<RawFd>; 3],
    pub(super) moves: &'a [Move],
    pub(super) close_others: bool,
    pub(super) options: &'a UnixOptions,
    pub(super) unset_groups: UnsetGroups,
    pub(super) current_dir: *const c_char,
    pub(super) chroot: *const c_char,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    pub(super) candidates: *const *const c_char,
    /// True if the candidates come from a search, false if they are the one given path.
    pub(super) searches: bool,
    /// The signal mask of the program; `None` for an empty one.
    pub(super) mask: Option<libc::sigset_t>,
    /// The cgroup to be born in, and the file that a child which was not born there writes to.
    pub(super) cgroup: Option<RawFd>,
    pub(super) cgroup_procs: Option<RawFd>,
    /// The `cgroup.procs` files of further groups that it joins, for its limits.
    pub(super) limit_procs: &'a [OwnedFd],
    /// The terminal on which it becomes the foreground job.
    pub(super) terminal: Option<RawFd>,
    /// The terminal that becomes the controlling one of its session.
    pub(super) own_terminal: Option<RawFd>,
    /// True if SIGCHLD was ignored in the process that the child comes from, and no longer is in its
    /// parent.
    pub(super) ignores_sigchld: AtomicBool,
    /// The process whose end kills the child: this one. 0: none.
    pub(super) parent_pid: i32,
    /// True if the parent will start another child when this one reports [`STOP_PENDING`].
    pub(super) may_retry: AtomicBool,
    /// The step that failed, and its error: written by the child, read by the parent. 0 is success.
    pub(super) failed_step: AtomicU32,
    pub(super) errno: AtomicI32,
    /// True if the child runs and shares the parent's memory.
    pub(super) has_begun: AtomicBool,
    /// The pipe for the report of a child that may not share the parent's memory. Negative: none.
    pub(super) report_to: AtomicI32,
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
    pub(super) fn reset(&self, may_retry: bool, may_share_handles: bool) {
        self.may_retry.store(may_retry, Ordering::Relaxed);
        self.may_share_handles.store(may_share_handles, Ordering::Relaxed);
        self.shares_handles.store(false, Ordering::Relaxed);
        self.failed_step.store(0, Ordering::Relaxed);
        self.errno.store(0, Ordering::Relaxed);
        self.has_begun.store(false, Ordering::Relaxed);
        self.report_to.store(-1, Ordering::Relaxed);
    }

    fn fail(&self, step: u32, errno: i32) {
        self.failed_step.store(step, Ordering::Relaxed);
        self.errno.store(errno, Ordering::Relaxed);
        let pipe = self.report_to.load(Ordering::Relaxed);
        if pipe >= 0 {
            let report: u64 = (u64::from(step) << 32) | u64::from(errno as u32);
            rights::write(pipe, &report.to_ne_bytes());
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
            |source: &Option<RawFd>| source.is_none_or(|it| it <= libc::STDERR_FILENO);
        let has_groups = !self.moves.is_empty() || !self.limit_procs.is_empty();
        let has_terminal = self.terminal.is_some() || self.own_terminal.is_some();
        self.stdio.iter().all(is_standard) && !has_groups && !has_terminal
    }

    pub(super) fn changes_identity(&self) -> bool {
        self.options.identity != Credentials::default()
    }
}

/// A substitute for an errno: a stop signal is pending, and the parent, which has to stop as well, must
/// return from its sleep first; or one that would dump the parent's memory.
pub(super) const STOP_PENDING: i32 = i32::MAX;

/// A substitute for an errno: the child could not copy the handles that it shares. It has changed none.
pub(super) const HANDLES_SHARED: i32 = i32::MAX - 1;

/// A handle for the child, and its number in the child.
pub(super) struct Move {
    pub(super) from: RawFd,
    pub(super) to: RawFd,
    /// The child's copy of it, away from the target numbers; `from` stays unchanged, for another attempt.
    moved: Cell<RawFd>,
}

impl Move {
    pub(super) fn new(from: RawFd, to: RawFd) -> Move {
        Move { from, to, moved: Cell::new(from) }
    }
}

/// The signal handlers that the child starts with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Handlers {
    /// The defaults, and ignored signals: by `CLONE_CLEAR_SIGHAND`.
    Reset,
    /// The parent's functions.
    Inherited,
}

/// A step that failed; the reason is in errno.
struct FailedStep(Step);

/// Runs in the child and never returns.
///
/// # Safety
/// The caller is a new process on its own stack, and `setup` stays alive until exec or exit.
pub(super) unsafe fn run(setup: &ChildSetup<'_>, handlers: Handlers) -> ! {
    setup.has_begun.store(true, Ordering::Relaxed);
    let cgroup = match handlers {
        // clone3 created the child inside the cgroup.
        Handlers::Reset => None,
        Handlers::Inherited => {
            signals::reset_handlers();
            setup.cgroup_procs
        }
    };
    signals::die_without_dump();
    let highest = cgroup.unwrap_or(libc::STDERR_FILENO);
    if setup.shares_handles.load(Ordering::Relaxed) && !handles::unshare(highest) {
        setup.fail(steps::number_of(Step::CloseOthers), HANDLES_SHARED);
    } else {
        // SAFETY: as this function's.
        unsafe { attempt(setup, cgroup, CredentialScope::Child, &mut []) };
    }
    // SAFETY: ends this process without touching what belongs to the parent (no atexit, no flush).
    unsafe { libc::_exit(127) }
}

/// Runs like [`run`], in a forked child. The child has its own memory, so this function returns, with the
/// failure in a setup that the parent does not see.
///
/// # Safety
/// Call this only in a forked process. `setup`'s pointers must be valid.
pub(super) unsafe fn run_forked(setup: &ChildSetup<'_>, closures: &mut [Closure]) {
    // A closure may unblock signals, and the parent's handlers are not prepared to run in two processes.
    signals::reset_handlers();
    // SAFETY: as this function's.
    unsafe { attempt(setup, setup.cgroup_procs, CredentialScope::Child, closures) };
}

/// Applies the plan to this process and executes the program. Returns if something failed. Then SIGPIPE has
/// its earlier action again: a write to a closed pipe must not end this process if it did not before.
///
/// # Safety
/// This changes the calling process. `setup`'s pointers must be valid.
pub(super) unsafe fn become_program(setup: &ChildSetup<'_>, closures: &mut [Closure]) {
    let _restore = signals::RestoreAction::new(libc::SIGPIPE);
    // SAFETY: as this function's.
    unsafe { attempt(setup, None, CredentialScope::Process, closures) };
}

unsafe fn attempt(
    setup: &ChildSetup<'_>,
    cgroup: Option<RawFd>,
    scope: CredentialScope,
    closures: &mut [Closure],
) {
    // SAFETY: as this function's.
    if let Err(FailedStep(step)) = unsafe { prepare_and_exec(setup, cgroup, scope, closures) } {
        setup.fail(steps::number_of(step), errno());
    }
}

/// # Safety
/// As for [`become_program`].
unsafe fn prepare_and_exec(
    setup: &ChildSetup<'_>,
    cgroup: Option<RawFd>,
    scope: CredentialScope,
    closures: &mut [Closure],
) -> Result<(), FailedStep> {
    // Rust programs ignore SIGPIPE from the start, and a child that inherits that does not stop when its
    // reader is gone (rust-lang/rust#62569).
    signals::set_default(libc::SIGPIPE);
    for signal in &setup.options.default_signals {
        signals::set_default(signal.number());
    }
    if setup.ignores_sigchld.load(Ordering::Relaxed) {
        signals::ignore(libc::SIGCHLD);
    }
    if let Some(cgroup) = cgroup {
        rights::join_cgroup(cgroup, Step::Contain)?;
    }
    for group in setup.limit_procs {
        rights::join_cgroup(group.as_raw_fd(), Step::TreeLimits)?;
    }
    rights::join_group(setup.options.group)?;
    if let Some(terminal) = setup.own_terminal {
        rights::take_terminal(terminal)?;
    }
    if let Some(terminal) = setup.terminal {
        rights::become_foreground(terminal);
    }
    handles::move_sources_away(setup.moves)?;
    handles::place_stdio(setup.stdio)?;
    if setup.close_others {
        handles::close_others()?;
    }
    handles::place(setup.moves)?;
    rights::set_limits(&setup.options.limits)?;
    if let Some(mask) = setup.options.umask {
        // SAFETY: a number; umask has no error.
        unsafe { libc::umask(mask as libc::mode_t) };
    }
    if let Some(add) = setup.options.nice {
        rights::add_nice(add)?;
    }
    // SAFETY: null or a string that the layout owns.
    unsafe { rights::change_root(setup.chroot)? };
    rights::change_identity(&setup.options.identity, setup.unset_groups, scope)?;
    if !setup.current_dir.is_null() {
        // After the change of user, as in std: that user must be allowed to enter the directory.
        // SAFETY: a string that the layout owns.
        check(unsafe { libc::chdir(setup.current_dir) }, Step::CurrentDir)?;
    }
    if scope == CredentialScope::Child && setup.parent_pid != 0 {
        rights::die_with_parent(setup.parent_pid)?;
    }
    if !closures.is_empty() {
        // A closure may change the mask, so it is set before the closures run, and not again afterwards.
        signals::set_mask(setup.mask.as_ref());
        if let Err(errno) = pre_exec::run(closures) {
            set_errno(errno);
            return Err(FailedStep(Step::PreExec));
        }
    }
    // SAFETY: arrays that the layout owns, each ended by NULL.
    unsafe { exec_first(setup, closures.is_empty()) };
    Err(FailedStep(Step::Exec))
}

/// Executes the first candidate that can be executed, in the way execvp(3) goes through PATH. Returns if
/// there is none, with the most informative error in errno, or with [`STOP_PENDING`] if the attempt has to
/// be repeated.
///
/// Signals are unblocked only at the last moment: a stop that arrived before exec would stop this process
/// with its parent still asleep, and the two would hold the terminal for ever (nextest-rs/nextest#470). A core dump would be one
/// of the parent's memory.
///
/// # Safety
/// `setup`'s pointers must be valid.
unsafe fn exec_first(setup: &ChildSetup<'_>, unblocks_signals: bool) {
    let mut forbidden = false;
    let mut next = setup.candidates;
    loop {
        // SAFETY: not past the NULL at the end.
        let path = unsafe { *next };
        if path.is_null() {
            break;
        }
        // SAFETY: the NULL at the end is still ahead, or is next.
        next = unsafe { next.add(1) };
        // SAFETY: a C string.
        if setup.searches && unsafe { libc::access(path, libc::X_OK) } != 0 {
            // access(2) answers for the real user; only the exec shows what the effective user may do.
            if errno() != libc::EACCES {
                continue;
            }
        }
        if unblocks_signals {
            let pending = signals::Pending::now();
            if setup.may_retry.load(Ordering::Relaxed) && pending.interrupt() {
                set_errno(STOP_PENDING);
                return;
            }
            let shares_memory = setup.has_begun.load(Ordering::Relaxed);
            if shares_memory && pending.dump() {
                signals::kill_self(0);
            }
            signals::set_mask(setup.mask.as_ref());
        }
        // SAFETY: as this function's.
        unsafe { libc::execve(path, setup.argv, setup.envp) };
        let error = errno();
        if unblocks_signals {
            signals::block_all();
            set_errno(error);
        }
        match error {
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            // A later candidate may be allowed; if none is, this is the error to report.
            libc::EACCES => forbidden = true,
            _ => return,
        }
        if !setup.searches {
            return;
        }
    }
    set_errno(if forbidden { libc::EACCES } else { libc::ENOENT });
}

fn check(result: libc::c_int, step: Step) -> Result<(), FailedStep> {
    if result < 0 { Err(FailedStep(step)) } else { Ok(()) }
}

fn errno() -> i32 {
    // SAFETY: no arguments; the location is this thread's, or that of the thread whose storage the child
    // shares.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: a live int. That thread is inside clone, or, if a supervisor creates the child, between calls
    // that do not touch errno: it closes two handles, without an error, and receives a message by a raw
    // system call.
    unsafe { *location }
}

fn set_errno(errno: i32) {
    // SAFETY: as above.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *location = errno };
}
