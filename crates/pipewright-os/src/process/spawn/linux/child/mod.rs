//! The child's half of a start: what runs between clone and exec.
//!
//! It shares the memory of the parent, and the storage of the one of its threads that starts it. That
//! thread sleeps meanwhile, or, where a supervisor makes the child, waits for its word; the others run: so nothing
//! here allocates, locks, panics or unwinds, calls that are cancellation points are made bare, and so
//! are those that change credentials (the C library's would tell every thread of the parent).
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the order of things, and the search for the program |
//! | `handles.rs` | stdio, the inherited list, and nothing else |
//! | `rights.rs` | group, limits, root directory, user, death with the parent |
//! | `signals.rs` | mask and handlers |

mod handles;
mod rights;
mod signals;

use std::cell::Cell;
use std::ffi::c_char;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::process::spawn::pre_exec::{self, Closure};
use crate::process::spawn::{Identity, Step, UnixOptions, UnsetGroups, steps};
use rights::Whose;

/// Everything the child needs, made before it exists.
pub(in crate::process::spawn) struct Job<'a> {
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
    /// Whether the candidates are places to search, not the one path that was given.
    pub(super) searches: bool,
    /// The signal mask of the program; an empty one where `None`.
    pub(super) mask: Option<libc::sigset_t>,
    /// The cgroup to be born in, and what a child that was not born there writes to.
    pub(super) cgroup: Option<RawFd>,
    pub(super) cgroup_procs: Option<RawFd>,
    /// Where it is to become the foreground job.
    pub(super) terminal: Option<RawFd>,
    /// Whether SIGCHLD was ignored where the child comes from, and is not any more in its parent.
    pub(super) ignores_children: AtomicBool,
    /// The child is killed when this process ends. 0: it is not.
    pub(super) parent_pid: i32,
    /// The parent will start another child if this one says [`STOP_PENDING`].
    pub(super) may_try_again: AtomicBool,
    /// Where it failed, and why: written by the child, read by the parent. 0 is "it did not".
    pub(super) failed_step: AtomicU32,
    pub(super) errno: AtomicI32,
    /// The child runs, and its memory is ours.
    pub(super) began: AtomicBool,
    /// A pipe for the report of a child whose memory may not be ours. Negative: there is none.
    pub(super) report_to: AtomicI32,
}

/// The step that failed and the error, as they go through a pipe.
pub(super) type Report = [u8; 8];

// SAFETY: a job is handed to the immortal thread while its caller waits: one thread at a time
// touches the cells and follows the pointers.
unsafe impl Sync for Job<'_> {}

impl Job<'_> {
    /// Forgets what an earlier attempt has left.
    pub(super) fn begin(&self, may_try_again: bool) {
        self.may_try_again.store(may_try_again, Ordering::Relaxed);
        self.failed_step.store(0, Ordering::Relaxed);
        self.errno.store(0, Ordering::Relaxed);
        self.began.store(false, Ordering::Relaxed);
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
    pub(super) fn take(&self, report: Report) {
        let report = u64::from_ne_bytes(report);
        self.failed_step.store((report >> 32) as u32, Ordering::Relaxed);
        self.errno.store(report as i32, Ordering::Relaxed);
    }

    pub(super) fn changes_identity(&self) -> bool {
        self.options.identity != Identity::default()
    }
}

/// In place of an errno: a stop signal waits to be delivered, and the parent, which is to be
/// stopped as well, has to come out of its sleep first.
pub(super) const STOP_PENDING: i32 = i32::MAX;

/// A handle for the child, and the number that it is to have there.
pub(super) struct Move {
    pub(super) from: RawFd,
    pub(super) to: RawFd,
    /// Where the child has put it out of the way; `from` stays as it is, for another try.
    lifted: Cell<RawFd>,
}

impl Move {
    pub(super) fn new(from: RawFd, to: RawFd) -> Move {
        Move { from, to, lifted: Cell::new(from) }
    }
}

/// What the child finds installed for each signal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Handlers {
    /// The defaults, and what was ignored: `CLONE_CLEAR_SIGHAND` saw to it.
    AreReset,
    /// Functions of the parent.
    AreInherited,
}

/// A step that failed; the reason is in errno.
struct Failed(Step);

/// Runs in the child and never comes back.
///
/// # Safety
/// Only in a process of its own, on a stack of its own, with `job` alive until exec or exit.
pub(super) unsafe fn run(job: &Job<'_>, handlers: Handlers) -> ! {
    job.began.store(true, Ordering::Relaxed);
    let cgroup = match handlers {
        // Made by clone3, and so born inside.
        Handlers::AreReset => None,
        Handlers::AreInherited => {
            signals::reset_handlers();
            job.cgroup_procs
        }
    };
    // SAFETY: as this function's.
    unsafe { attempt(job, cgroup, Whose::Child, &mut []) };
    // SAFETY: ends this process without touching what belongs to the parent (no atexit, no flush).
    unsafe { libc::_exit(127) }
}

/// As [`run`], in a forked child: in memory of its own, and so it returns, with its failure in the
/// job, which the parent does not see.
///
/// # Safety
/// Only in a forked process; `job`'s pointers must be good.
pub(super) unsafe fn run_forked(job: &Job<'_>, closures: &mut [Closure]) {
    // A closure may let signals in, and whoever handles them here is not prepared for two of him.
    signals::reset_handlers();
    // SAFETY: as this function's.
    unsafe { attempt(job, job.cgroup_procs, Whose::Child, closures) };
}

/// Does what the plan says to this process and loads the program. Returns if something failed: then
/// a write to somebody who has gone is what it was, and not the end of this process.
///
/// # Safety
/// Changes this process; `job`'s pointers must be good.
pub(super) unsafe fn become_program(job: &Job<'_>, closures: &mut [Closure]) {
    let _kept = signals::Kept::new(libc::SIGPIPE);
    // SAFETY: as this function's.
    unsafe { attempt(job, None, Whose::Process, closures) };
}

unsafe fn attempt(job: &Job<'_>, cgroup: Option<RawFd>, whose: Whose, closures: &mut [Closure]) {
    // SAFETY: as this function's.
    if let Err(Failed(step)) = unsafe { prepare_and_exec(job, cgroup, whose, closures) } {
        job.fail(steps::number_of(step), errno());
    }
}

/// # Safety
/// As [`become_program`].
unsafe fn prepare_and_exec(
    job: &Job<'_>,
    cgroup: Option<RawFd>,
    whose: Whose,
    closures: &mut [Closure],
) -> Result<(), Failed> {
    // Rust programs ignore SIGPIPE from the start, and a child that inherits that does not stop
    // when its reader is gone (rust-lang/rust#62569).
    signals::set_default(libc::SIGPIPE);
    if job.ignores_children.load(Ordering::Relaxed) {
        signals::ignore(libc::SIGCHLD);
    }
    if let Some(cgroup) = cgroup {
        rights::join_cgroup(cgroup)?;
    }
    rights::join_group(job.options.group)?;
    if let Some(terminal) = job.terminal {
        rights::come_to_the_front(terminal);
    }
    handles::lift(job.moves)?;
    handles::place_stdio(job.stdio)?;
    if job.close_others {
        handles::close_others()?;
    }
    handles::place(job.moves)?;
    rights::limit(&job.options.limits)?;
    if let Some(mask) = job.options.umask {
        // SAFETY: a number; umask has no error.
        unsafe { libc::umask(mask as libc::mode_t) };
    }
    if let Some(add) = job.options.nice {
        rights::be_nicer(add)?;
    }
    // SAFETY: null or a string that the layout owns.
    unsafe { rights::change_root(job.chroot)? };
    rights::change_identity(&job.options.identity, job.unset_groups, whose)?;
    if !job.current_dir.is_null() {
        // After the change of user, as std has it: the directory must be that user's to enter.
        // SAFETY: a string that the layout owns.
        check(unsafe { libc::chdir(job.current_dir) }, Step::CurrentDir)?;
    }
    if whose == Whose::Child && job.parent_pid != 0 {
        rights::tie_to_parent(job.parent_pid)?;
    }
    if !closures.is_empty() {
        // A closure may change the mask, so that it is set before, and stays as it is then.
        signals::set_mask(job.mask.as_ref());
        if let Err(errno) = pre_exec::run(closures) {
            set_errno(errno);
            return Err(Failed(Step::PreExec));
        }
    }
    // SAFETY: arrays that the layout owns, each ended by NULL.
    unsafe { exec_first(job, closures.is_empty()) };
    Err(Failed(Step::Exec))
}

/// Loads the first candidate that can be loaded, as execvp(3) goes through PATH. Returns when none
/// can, with the telling reason in errno; [`STOP_PENDING`] where it is not the moment to try.
///
/// Signals are let in at the last moment only: a stop that arrived before exec would stop this
/// process with its parent still asleep, and the two of them would hold the terminal for ever
/// (nextest-rs/nextest#470).
///
/// # Safety
/// `job`'s pointers must be good.
unsafe fn exec_first(job: &Job<'_>, lets_signals_in: bool) {
    let mut forbidden = false;
    let mut next = job.candidates;
    loop {
        // SAFETY: not past the NULL at the end.
        let path = unsafe { *next };
        if path.is_null() {
            break;
        }
        // SAFETY: the NULL at the end is still ahead, or is next.
        next = unsafe { next.add(1) };
        // SAFETY: a C string.
        if job.searches && unsafe { libc::access(path, libc::X_OK) } != 0 {
            // That answer is for our real user (access(2)); what the effective one may, only the exec knows.
            if errno() != libc::EACCES {
                continue;
            }
        }
        if lets_signals_in {
            if job.may_try_again.load(Ordering::Relaxed) && signals::a_stop_is_pending() {
                set_errno(STOP_PENDING);
                return;
            }
            signals::set_mask(job.mask.as_ref());
        }
        // SAFETY: as this function's.
        unsafe { libc::execve(path, job.argv, job.envp) };
        let error = errno();
        if lets_signals_in {
            signals::block_all();
            set_errno(error);
        }
        match error {
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            // One further on may be ours to run; if none is, this is what to say.
            libc::EACCES => forbidden = true,
            _ => return,
        }
        if !job.searches {
            return;
        }
    }
    set_errno(if forbidden { libc::EACCES } else { libc::ENOENT });
}

fn check(result: libc::c_int, step: Step) -> Result<(), Failed> {
    if result < 0 { Err(Failed(step)) } else { Ok(()) }
}

fn errno() -> i32 {
    // SAFETY: takes nothing; the location is this thread's, or that of the thread whose storage the child
    // shares.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: a live int. That thread is inside of clone, or, where a supervisor makes the child, between
    // calls that leave errno alone: it closes two handles, which has no error, and receives a message by a
    // bare call.
    unsafe { *location }
}

fn set_errno(errno: i32) {
    // SAFETY: as above.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *location = errno };
}
