//! clone(2) as assembly.
//!
//! The C library's function is avoided if possible. musl's (1.2.4 and later) returns `EINVAL` for
//! `CLONE_CHILD_CLEARTID`, which shows when a child has left its stack. Both C libraries store the error in
//! `errno`, which a process that runs in this process's memory shares with a thread.

use std::io;
use std::os::fd::RawFd;

use super::clone::CloneRequest;

/// Creates a process on the given stack that begins at `after_clone`.
///
/// # Safety
/// As for [`vfork`](super::clone::vfork) and [`clone_without_waiting`](super::clone::clone_without_waiting).
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(super) unsafe fn clone(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let pidfd: *mut RawFd = request.pidfd.unwrap_or(std::ptr::null_mut());
    let result: i64;
    // SAFETY: clone returns twice. In the parent it is an ordinary system call, which clobbers rcx and r11.
    // In the child every other register is unchanged and rsp is the top of the stack, page-aligned and used
    // by nothing else, so the call starts the entry with a stack aligned as the ABI requires; it never
    // returns. The parent keeps the argument where it is. The kernel writes the pidfd where the parent's
    // tid would go, and the mark is the stack's lowest word.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r9",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone => result,
            in("rdi") i64::from(flags),
            in("rsi") request.stack.top(),
            in("rdx") pidfd,
            in("r10") request.stack.mark(),
            in("r8") 0_usize,
            in("r9") request.after_clone,
            in("r12") request.argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    // SAFETY: as above, with this processor's order of arguments: the thread pointer, which is not set,
    // comes before the mark. The call clobbers x0, and the kernel preserves no more of the SVE registers
    // than the C ABI does.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x6",
            "blr x5",
            "brk #1",
            "2:",
            in("x8") libc::SYS_clone,
            inlateout("x0") i64::from(flags) => result,
            in("x1") request.stack.top(),
            in("x2") pidfd,
            in("x3") 0_usize,
            in("x4") request.stack.mark(),
            in("x5") request.after_clone,
            in("x6") request.argument,
            clobber_abi("C"),
        );
    }
    // SAFETY: as above, in the order of aarch64. The call clobbers a0, and the kernel discards the vector
    // registers, which the C ABI does not preserve either.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        std::arch::asm!(
            "ecall",
            "bnez a0, 2f",
            "li s0, 0",
            "mv a0, a6",
            "jalr a5",
            "ebreak",
            "2:",
            in("a7") libc::SYS_clone,
            inlateout("a0") i64::from(flags) => result,
            in("a1") request.stack.top(),
            in("a2") pidfd,
            in("a3") 0_usize,
            in("a4") request.stack.mark(),
            in("a5") request.after_clone,
            in("a6") request.argument,
            clobber_abi("C"),
        );
    }
    if result < 0 { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(result as i32) }
}

/// Creates a process with the C library's clone, on other processors. Nothing is supervised there, so no
/// stack is marked.
///
/// # Safety
/// As for the function above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) unsafe fn clone(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let pidfd: *mut RawFd = request.pidfd.unwrap_or(std::ptr::null_mut());
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
            request.stack.mark(),
        )
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}
