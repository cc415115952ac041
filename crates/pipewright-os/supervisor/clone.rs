//! clone(2) as assembly: the C library's function stores its error in `errno`, and the supervisor has no library.

use core::arch::asm;
use core::ffi::{c_int, c_void};

/// The stack, the entry and the places of a new process.
pub(super) struct NewProcess {
    /// One past the highest byte of its stack, page-aligned.
    pub(super) stack_top: *mut u8,
    pub(super) entry: extern "C" fn(*mut c_void) -> c_int,
    pub(super) argument: *mut c_void,
    /// The place of the pidfd (`CLONE_PIDFD`).
    pub(super) pidfd: *mut c_int,
    /// The place of its number (`CLONE_CHILD_SETTID`, `CLONE_CHILD_CLEARTID`).
    pub(super) child_tid: *mut c_int,
}

/// Creates a process on the given stack that begins at the entry. A negative result is an error number.
///
/// # Safety
/// Nothing else may use the stack. The entry must not return, and must do nothing that is unsafe in a process that
/// shares the memory of a running one. The argument must stay valid for as long as the new process uses it.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn clone(flags: u64, new: &NewProcess) -> isize {
    let result: isize;
    // SAFETY: clone returns twice. In the parent it is an ordinary system call, which clobbers rcx and r11.
    // In the child every other register is unchanged and rsp is the top of the stack, page-aligned and used
    // by nothing else, so the call starts the entry with a stack aligned as the ABI requires; it never
    // returns. The parent keeps the argument where it is. The kernel writes the pidfd where the parent's
    // tid would go.
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
            inlateout("rax") 56_isize => result,
            in("rdi") flags,
            in("rsi") new.stack_top,
            in("rdx") new.pidfd,
            in("r10") new.child_tid,
            in("r8") 0_usize,
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
pub(super) unsafe fn clone(flags: u64, new: &NewProcess) -> isize {
    let result: isize;
    // SAFETY: as for x86-64, with this processor's order of arguments: the thread pointer, which is not set,
    // comes before the place of the number. The call clobbers x0, and the kernel preserves no more of the SVE
    // registers than the C ABI does.
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
            in("x8") 220_usize,
            inlateout("x0") flags => result,
            in("x1") new.stack_top,
            in("x2") new.pidfd,
            in("x3") 0_usize,
            in("x4") new.child_tid,
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
pub(super) unsafe fn clone(flags: u64, new: &NewProcess) -> isize {
    let result: isize;
    // SAFETY: as for x86-64, in the order of aarch64. The call clobbers a0, and the kernel discards the vector
    // registers, which the C ABI does not preserve either.
    unsafe {
        asm!(
            "ecall",
            "bnez a0, 2f",
            "li s0, 0",
            "mv a0, a6",
            "jalr a5",
            "ebreak",
            "2:",
            in("a7") 220_usize,
            inlateout("a0") flags => result,
            in("a1") new.stack_top,
            in("a2") new.pidfd,
            in("a3") 0_usize,
            in("a4") new.child_tid,
            in("a5") new.entry,
            in("a6") new.argument,
            clobber_abi("C"),
        );
    }
    result
}
