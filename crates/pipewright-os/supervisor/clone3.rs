//! clone3(2) as assembly, which can create a process in a cgroup.

use core::arch::asm;

use crate::clone::NewProcess;

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

/// Creates a process as `clone` does, in a cgroup (`CLONE_INTO_CGROUP`, Linux 5.7).
///
/// # Safety
/// As for `clone`.
pub(super) unsafe fn clone_into_cgroup(
    flags: u64,
    exit_signal: u64,
    stack_bytes: usize,
    cgroup: i32,
    new: &NewProcess,
) -> isize {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let arguments = CloneArgs {
        flags: flags | CLONE_INTO_CGROUP,
        pidfd: new.pidfd as u64,
        child_tid: new.child_tid as u64,
        parent_tid: 0,
        exit_signal,
        stack: new.stack_top as u64 - stack_bytes as u64,
        stack_size: stack_bytes as u64,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup as u64,
    };
    // SAFETY: as the caller promises.
    unsafe { clone3(&arguments, new) }
}

/// Calls clone3(2).
///
/// # Safety
/// As for `clone`.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(arguments: &CloneArgs, new: &NewProcess) -> isize {
    let result: isize;
    // SAFETY: as for `clone`; the kernel makes the stack's top from its start and its size.
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
            inlateout("rax") 435_isize => result,
            in("rdi") &raw const *arguments,
            in("rsi") size_of::<CloneArgs>(),
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
unsafe fn clone3(arguments: &CloneArgs, new: &NewProcess) -> isize {
    let result: isize;
    // SAFETY: as for `clone`.
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
            in("x8") 435_usize,
            inlateout("x0") &raw const *arguments => result,
            in("x1") size_of::<CloneArgs>(),
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
unsafe fn clone3(arguments: &CloneArgs, new: &NewProcess) -> isize {
    let result: isize;
    // SAFETY: as for `clone`.
    unsafe {
        asm!(
            "ecall",
            "bnez a0, 2f",
            "li s0, 0",
            "mv a0, a6",
            "jalr a5",
            "ebreak",
            "2:",
            in("a7") 435_usize,
            inlateout("a0") &raw const *arguments => result,
            in("a1") size_of::<CloneArgs>(),
            in("a5") new.entry,
            in("a6") new.argument,
            clobber_abi("C"),
        );
    }
    result
}
