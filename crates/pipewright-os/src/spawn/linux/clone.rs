//! Makes the child: shares our memory, runs on its own stack, and we sleep until it has exec'd.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::child::{self, Handlers, Job};
use super::stack::Stack;
use crate::exit::linux::pidfds_are_refused;
use crate::signal::AllBlocked;

/// clone(2): Linux 5.5, and only through clone3 (the low 32 bits are full).
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;

/// Set once `clone3` has been refused; then nobody tries again.
static CLONE3_REFUSED: AtomicBool =
    AtomicBool::new(crate::fallback::NO_CLONE3 || !cfg!(target_arch = "x86_64"));

/// Creates the child and returns when it has loaded its program, or ended without.
pub(super) fn create(job: &Job<'_>, stack: &Stack) -> io::Result<(i32, Option<OwnedFd>)> {
    // A signal that arrived in the child before exec would run a handler of this program in a
    // second process that shares its memory.
    let _blocked = AllBlocked::new();
    if !CLONE3_REFUSED.load(Ordering::Relaxed) {
        match clone3(job, stack) {
            Err(error) if is_refused(&error) => CLONE3_REFUSED.store(true, Ordering::Relaxed),
            done => return done,
        }
    }
    let pidfd_too = !pidfds_are_refused();
    match clone(job, stack, pidfd_too) {
        Err(error) if pidfd_too && error.raw_os_error() == Some(libc::EINVAL) => {
            clone(job, stack, false)
        }
        done => done,
    }
}

/// ENOSYS from an old kernel or a filter made before the call; EPERM from a filter that knows no
/// better; EINVAL where a flag is not known.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EINVAL))
}

#[cfg(target_arch = "x86_64")]
fn clone3(job: &Job<'_>, stack: &Stack) -> io::Result<(i32, Option<OwnedFd>)> {
    // SAFETY: all zeroes is a clone_args, and the kernel takes it so.
    let mut args: libc::clone_args = unsafe { mem::zeroed() };
    let mut pidfd: libc::c_int = -1;
    args.flags = libc::CLONE_VM as u64 | libc::CLONE_VFORK as u64 | CLONE_CLEAR_SIGHAND;
    if !pidfds_are_refused() {
        args.flags |= libc::CLONE_PIDFD as u64;
        args.pidfd = &raw mut pidfd as u64;
    }
    args.exit_signal = libc::SIGCHLD as u64;
    args.stack = stack.low() as u64;
    args.stack_size = Stack::BYTES as u64;
    let result: i64;
    // SAFETY: clone3 returns twice. In the parent it is an ordinary system call, which clobbers
    // rcx and r11. In the child every other register is as it was and rsp is the top of `stack`,
    // page-aligned and in use by nobody else, so the call below starts `run` with an aligned stack
    // as the ABI wants it; `run` never returns. `job` outlives the child's use of it, because
    // CLONE_VFORK keeps this thread here until the child has exec'd or exited.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r9",
            "call r8",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") &raw const args,
            in("rsi") mem::size_of::<libc::clone_args>(),
            in("r8") run_after_clone3 as unsafe extern "C" fn(*const Job<'_>) -> !,
            in("r9") std::ptr::from_ref(job),
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result as i32));
    }
    Ok((result as i32, super::own_pidfd(pidfd)))
}

#[cfg(not(target_arch = "x86_64"))]
fn clone3(_: &Job<'_>, _: &Stack) -> io::Result<(i32, Option<OwnedFd>)> {
    // The child of clone3 starts on a new stack, so the call has to be written in assembly;
    // elsewhere the C library's clone does the same with handlers reset one by one.
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn run_after_clone3(job: *const Job<'_>) -> ! {
    // SAFETY: the parent keeps the job alive and untouched until this process has exec'd or ended.
    let job = unsafe { &*job };
    // SAFETY: this is the child, on a stack of its own.
    unsafe { child::run(job, Handlers::AreReset) }
}

fn clone(job: &Job<'_>, stack: &Stack, pidfd_too: bool) -> io::Result<(i32, Option<OwnedFd>)> {
    let mut pidfd: libc::c_int = -1;
    let mut flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    if pidfd_too {
        flags |= libc::CLONE_PIDFD;
    }
    // SAFETY: the child runs `run_after_clone` on a stack of its own, and CLONE_VFORK keeps this
    // thread, and with it `job`, where it is until the child has exec'd or exited. The kernel
    // writes the pidfd where the parent's tid would go (clone(2)).
    let pid = unsafe {
        libc::clone(
            run_after_clone,
            stack.top().cast(),
            flags,
            std::ptr::from_ref(job).cast_mut().cast(),
            &raw mut pidfd,
        )
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok((pid, super::own_pidfd(pidfd))) }
}

extern "C" fn run_after_clone(job: *mut libc::c_void) -> libc::c_int {
    // SAFETY: as in run_after_clone3.
    let job = unsafe { &*job.cast_const().cast::<Job<'_>>() };
    // SAFETY: this is the child, on a stack of its own.
    unsafe { child::run(job, Handlers::AreInherited) }
}
