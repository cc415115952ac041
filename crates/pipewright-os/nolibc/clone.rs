//! clone(2) and clone3(2) as assembly.
//!
//! The C library's function stores its error in `errno`, which a process that runs in this process's memory shares with a
//! thread. musl's (1.2.4 and later) returns `EINVAL` for `CLONE_CHILD_CLEARTID`, which shows when a child has left its stack. And
//! the supervisor has no library.

use core::arch::asm;
use core::ffi::{c_int, c_void};

/// The stack, the entry and the places of a new process.
pub(crate) struct NewProcess {
    /// One past the highest byte of its stack, page-aligned.
    pub(crate) stack_top: *mut u8,
    pub(crate) entry: extern "C" fn(*mut c_void) -> c_int,
    pub(crate) argument: *mut c_void,
    /// The place of the pidfd (`CLONE_PIDFD`).
    pub(crate) pidfd: *mut c_int,
    /// The place of its number (`CLONE_CHILD_SETTID`, `CLONE_CHILD_CLEARTID`).
    pub(crate) child_tid: *mut c_int,
}

/// The arguments of a call that creates a process, in their order for this processor.
type Arguments = [usize; 5];

/// Creates a process on the given stack that begins at the entry. A negative result is an error number.
///
/// # Safety
/// Nothing else may use the stack. The entry must not return, and must do nothing that is unsafe in a process that
/// shares the memory of a running one. The argument must stay valid for as long as the new process uses it.
pub(crate) unsafe fn clone(flags: u64, new: &NewProcess) -> isize {
    let (flags, stack) = (flags as usize, new.stack_top as usize);
    // The kernel writes the pidfd where the parent's tid would go.
    let (pidfd, child_tid) = (new.pidfd as usize, new.child_tid as usize);
    // The thread pointer is not set. On x86-64 it comes after the place of the number.
    const NO_THREAD_POINTER: usize = 0;
    #[cfg(target_arch = "x86_64")]
    let (number, arguments) = (56, [flags, stack, pidfd, child_tid, NO_THREAD_POINTER]);
    #[cfg(not(target_arch = "x86_64"))]
    let (number, arguments) = (220, [flags, stack, pidfd, NO_THREAD_POINTER, child_tid]);
    // SAFETY: as the caller promises.
    unsafe { create(number, arguments, new) }
}

/// The arguments of clone3(2).
#[repr(C, align(8))]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Creates a process as [`clone`] does, by clone3(2): in a cgroup, if one is given (Linux 5.7), and with flags beyond 32 bits. Its
/// end sends SIGCHLD.
///
/// # Safety
/// As for [`clone`].
pub(crate) unsafe fn clone3(
    flags: u64,
    stack_bytes: usize,
    cgroup: Option<i32>,
    new: &NewProcess,
) -> isize {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    const SIGCHLD: u64 = 17;
    let arguments = CloneArgs {
        flags: if cgroup.is_some() { flags | CLONE_INTO_CGROUP } else { flags },
        pidfd: new.pidfd as u64,
        child_tid: new.child_tid as u64,
        parent_tid: 0,
        exit_signal: SIGCHLD,
        stack: new.stack_top as u64 - stack_bytes as u64,
        stack_size: stack_bytes as u64,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup.unwrap_or(0) as u64,
    };
    /// The number on all processors.
    const CLONE3: isize = 435;
    let place = &raw const arguments as usize;
    // SAFETY: as the caller promises. The kernel makes the stack's top from its start and its size.
    unsafe { create(CLONE3, [place, size_of::<CloneArgs>(), 0, 0, 0], new) }
}

/// Makes a call that creates a process, which begins at the entry. The stack is among the arguments.
///
/// # Safety
/// As for [`clone`].
#[cfg(target_arch = "x86_64")]
unsafe fn create(number: isize, arguments: Arguments, new: &NewProcess) -> isize {
    let result: isize;
    // SAFETY: the call returns twice. In the parent it is an ordinary system call, which clobbers rcx and r11.
    // In the child every other register is unchanged and rsp is the top of the stack, page-aligned and used
    // by nothing else, so the call starts the entry with a stack aligned as the ABI requires; it never
    // returns. The parent keeps the argument where it is.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r9",
            "ud2",
            "2:",
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") new.entry,
            in("r12") new.argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// Does the same.
///
/// # Safety
/// As for x86-64.
#[cfg(target_arch = "aarch64")]
unsafe fn create(number: isize, arguments: Arguments, new: &NewProcess) -> isize {
    let result: isize;
    // SAFETY: as for x86-64. The call clobbers x0, and the kernel preserves no more of the SVE registers than the C ABI
    // does.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x6",
            "blr x5",
            "brk #1",
            "2:",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") new.entry,
            in("x6") new.argument,
            clobber_abi("C"),
        );
    }
    result
}

/// Does the same.
///
/// # Safety
/// As for x86-64.
#[cfg(target_arch = "riscv64")]
unsafe fn create(number: isize, arguments: Arguments, new: &NewProcess) -> isize {
    let result: isize;
    // SAFETY: as for x86-64. The call clobbers a0, and the kernel discards the vector registers, which the C ABI does not
    // preserve either.
    unsafe {
        asm!(
            "ecall",
            "bnez a0, 2f",
            "li s0, 0",
            "mv a0, a6",
            "jalr a5",
            "ebreak",
            "2:",
            in("a7") number,
            inlateout("a0") arguments[0] => result,
            in("a1") arguments[1],
            in("a2") arguments[2],
            in("a3") arguments[3],
            in("a4") arguments[4],
            in("a5") new.entry,
            in("a6") new.argument,
            clobber_abi("C"),
        );
    }
    result
}
