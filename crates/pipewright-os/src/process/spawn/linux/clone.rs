//! Creates the child, which shares the parent's memory and runs on its own stack. The parent sleeps until
//! the child's exec.

#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, unused_imports, reason = "clone3 is called on x86-64 only")
)]

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::child::{self, ChildSetup, Handlers};
use super::stack::Stack;
use super::stop_watch::StopWatch;
use crate::base::signal::AllBlocked;
use crate::base::test_hooks::{Forced, is_forced};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
use crate::process::nolibc::clone as nolibc;
use crate::process::pidfd::pidfds_are_refused;

/// The flag to reset handlers: Linux 5.5, and only through clone3 (the low 32 bits are full); clone(2).
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

/// A substitute for an errno: the child has to join its cgroup by a file, which the caller has not opened.
pub(super) const NOT_BORN_IN_CGROUP: i32 = i32::MAX - 2;

/// True once `clone3` has been refused; then no call tries again.
static CLONE3_REFUSED: AtomicBool = AtomicBool::new(!cfg!(target_arch = "x86_64"));

fn clone3_is_refused() -> bool {
    is_forced(Forced::NoClone3)
        || is_forced(Forced::NoSharedMemory)
        || CLONE3_REFUSED.load(Ordering::Relaxed)
}

/// True once a child was born in its cgroup. Then the next one needs no file by which it joins.
static BORN_IN_CGROUP: AtomicBool = AtomicBool::new(false);

/// Returns true if a child will be born in its cgroup.
pub(super) fn is_born_in_cgroup() -> bool {
    BORN_IN_CGROUP.load(Ordering::Relaxed)
}

/// The entry function of a new process.
pub(super) type EntryFn = extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// A process that shares this process's memory until it execs.
pub(super) struct CloneRequest<'a> {
    pub(super) stack: &'a Stack,
    /// The cgroup to be born in. Only `clone3` can do that, so a process that starts with the parent's
    /// handlers has to join it.
    pub(super) cgroup: Option<RawFd>,
    /// True if it has no file by which it could join the cgroup.
    pub(super) must_be_born_in_cgroup: bool,
    /// The entry function if its handlers are reset.
    pub(super) after_clone3: EntryFn,
    /// The entry function if it has the parent's handlers.
    pub(super) after_clone: EntryFn,
    pub(super) argument: *mut libc::c_void,
    /// The place for a pidfd of it, if one is wanted and possible.
    pub(super) pidfd: Option<*mut libc::c_int>,
}

/// Creates the child and returns when it has loaded its program, or has ended without.
pub(super) fn create(setup: &ChildSetup<'_>, stack: &Stack) -> io::Result<(i32, Option<OwnedFd>)> {
    // Without this, a signal that arrived in the child before exec would run a handler of this program in a
    // second process that shares its memory.
    let _blocked = AllBlocked::new();
    let mut pidfd = -1;
    let request = CloneRequest {
        stack,
        cgroup: setup.cgroup,
        must_be_born_in_cgroup: setup.cgroup.is_some() && setup.cgroup_procs.is_none(),
        after_clone3: run_with_defaults,
        after_clone: run_with_inherited_handlers,
        argument: std::ptr::from_ref(setup).cast_mut().cast(),
        pidfd: Some(&raw mut pidfd),
    };
    let shared = if setup.shares_handles.load(Ordering::Relaxed) { libc::CLONE_FILES } else { 0 };
    if setup.changes_identity() {
        // The kernel sets it too, but only when the child runs.
        let mark = stack.mark();
        mark.store(1, Ordering::Relaxed);
        // SAFETY: as below. The wait ends when the child does not use the memory any more.
        match unsafe { begin(&request, MARKED | shared) } {
            Ok(pid) => {
                let raw = (pidfd >= 0).then_some(pidfd);
                StopWatch::new(pid, raw).wait_until_zero(mark);
                return Ok((pid, super::own_pidfd(pidfd)));
            }
            Err(error) => {
                mark.store(0, Ordering::Relaxed);
                // An emulator has only vfork (qemu-user).
                if error.raw_os_error() != Some(libc::EINVAL) {
                    return Err(error);
                }
            }
        }
    }
    // SAFETY: nothing else uses the stack, neither entry returns, and the setup stays where it is until the
    // child has exec'd or ended. A child that shares the handles changes none before it has its own.
    let pid = unsafe { begin(&request, libc::CLONE_VFORK | shared) }?;
    Ok((pid, super::own_pidfd(pidfd)))
}

/// Creates a process and sleeps until it has exec'd or ended.
///
/// # Safety
/// Nothing else may use the stack. The entries must not return, and must do nothing that is unsafe in a
/// process that shares the memory of a running one. The target of the argument must stay valid until the
/// new process has exec'd or ended. Signals must be blocked.
pub(super) unsafe fn vfork(request: &CloneRequest<'_>) -> io::Result<i32> {
    // SAFETY: as this function's.
    unsafe { begin(request, libc::CLONE_VFORK) }
}

/// Creates a process that runs beside this one. Once it runs, its stack is not reused before the process
/// has left it.
///
/// # Safety
/// As for [`vfork`]. In addition, the caller keeps the target of the argument valid for as long as the new
/// process uses it, and keeps the stack until the new process runs. The new process must not use `errno`
/// while the thread whose thread-local storage it shares does.
pub(super) unsafe fn clone_without_waiting(request: &CloneRequest<'_>) -> io::Result<i32> {
    // SAFETY: as this function's.
    unsafe { begin(request, MARKED) }
}

/// Creates a process like [`vfork`]. The stack is not reused before the new process has left it, even if
/// the parent is killed meanwhile.
///
/// # Safety
/// As for [`clone_without_waiting`].
pub(super) unsafe fn vfork_unattended(request: &CloneRequest<'_>) -> io::Result<i32> {
    // SAFETY: as this function's.
    unsafe { begin(request, libc::CLONE_VFORK | MARKED) }
}

/// The flags that maintain [`Stack::mark`].
const MARKED: libc::c_int = libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;

unsafe fn begin(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let mut flags = flags | libc::CLONE_VM | libc::SIGCHLD;
    if is_forced(Forced::NoSharedMemory) {
        // qemu-user does this.
        if flags & libc::CLONE_VFORK == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        flags &= !(libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES);
    }
    let wants_pidfd = request.pidfd.is_some() && !pidfds_are_refused();
    let with_pidfd = if wants_pidfd { flags | libc::CLONE_PIDFD } else { flags };
    if !clone3_is_refused() {
        // SAFETY: as this function's.
        match unsafe { clone3(request, with_pidfd) } {
            // The kernel may have refused the cgroup; then the child gets that error when it joins the cgroup.
            Err(error) if is_refused(&error) => {
                if request.must_be_born_in_cgroup {
                    BORN_IN_CGROUP.store(false, Ordering::Relaxed);
                    return Err(io::Error::from_raw_os_error(NOT_BORN_IN_CGROUP));
                }
                let unknown = error.raw_os_error() == Some(libc::ENOSYS);
                if unknown || request.cgroup.is_none() {
                    CLONE3_REFUSED.store(true, Ordering::Relaxed);
                }
            }
            done => {
                if done.is_ok() && request.cgroup.is_some() {
                    BORN_IN_CGROUP.store(true, Ordering::Relaxed);
                }
                return done;
            }
        }
    }
    if request.must_be_born_in_cgroup {
        BORN_IN_CGROUP.store(false, Ordering::Relaxed);
        return Err(io::Error::from_raw_os_error(NOT_BORN_IN_CGROUP));
    }
    // SAFETY: as this function's.
    match unsafe { clone(request, with_pidfd) } {
        Err(error) if wants_pidfd && error.raw_os_error() == Some(libc::EINVAL) => {
            // SAFETY: as this function's.
            unsafe { clone(request, flags) }
        }
        done => done,
    }
}

/// Returns true if `clone` may succeed instead: ENOSYS from an old kernel, or from a filter older than the
/// call; EPERM from a filter that should return ENOSYS; EINVAL if a flag is not known; E2BIG if the cgroup
/// field is not known.
fn is_refused(error: &io::Error) -> bool {
    let refusals = [libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::E2BIG];
    error.raw_os_error().is_some_and(|errno| refusals.contains(&errno))
}

#[cfg(target_arch = "x86_64")]
unsafe fn clone3(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let new = new_process(request, request.after_clone3);
    let flags = (flags & !libc::SIGCHLD) as u64 | CLONE_CLEAR_SIGHAND;
    // SAFETY: as this function's.
    number_or_error(unsafe { nolibc::clone3(flags, Stack::BYTES, request.cgroup, &new) })
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn clone3(_: &CloneRequest<'_>, _: libc::c_int) -> io::Result<i32> {
    // Nobody has tried it there: clone does the same, with handlers reset one by one.
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
fn new_process(request: &CloneRequest<'_>, entry: EntryFn) -> nolibc::NewProcess {
    nolibc::NewProcess {
        stack_top: request.stack.top(),
        entry,
        argument: request.argument,
        pidfd: request.pidfd.unwrap_or(std::ptr::null_mut()),
        child_tid: request.stack.mark().as_ptr(),
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
fn number_or_error(result: isize) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(result as i32) }
}

/// Creates a process on the given stack that begins at `after_clone`.
///
/// # Safety
/// As for [`vfork`] and [`clone_without_waiting`].
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
unsafe fn clone(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let new = new_process(request, request.after_clone);
    // SAFETY: as this function's. The stack's mark is its lowest word.
    number_or_error(unsafe { nolibc::clone(flags as u64, &new) })
}

/// Creates a process with the C library's clone, on other processors. Nothing is supervised there, so no
/// stack is marked.
///
/// # Safety
/// As for the function above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
unsafe fn clone(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let pidfd: *mut std::os::fd::RawFd = request.pidfd.unwrap_or(std::ptr::null_mut());
    // SAFETY: the child runs the entry on a stack of its own, with an argument that the parent keeps where
    // it is. The kernel writes the pidfd where the parent's tid would go (clone(2)).
    let pid = unsafe {
        libc::clone(
            request.after_clone,
            request.stack.top().cast(),
            flags,
            request.argument,
            pidfd,
            std::ptr::null_mut::<libc::c_void>(),
            request.stack.mark().as_ptr(),
        )
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

extern "C" fn run_with_defaults(setup: *mut libc::c_void) -> libc::c_int {
    run(setup, Handlers::Reset)
}

extern "C" fn run_with_inherited_handlers(setup: *mut libc::c_void) -> libc::c_int {
    run(setup, Handlers::Inherited)
}

fn run(setup: *mut libc::c_void, handlers: Handlers) -> ! {
    // SAFETY: the parent keeps the setup alive and untouched until this process has exec'd or ended.
    let setup = unsafe { &*setup.cast_const().cast::<ChildSetup<'_>>() };
    // SAFETY: this is the child, on its own stack.
    unsafe { child::run(setup, handlers) }
}
