//! One raw system call: no library, no `errno`, nothing that another thread could see.

use core::arch::asm;

/// Makes the call and returns its result; a negative result is an error number.
pub(super) fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: each caller passes what its call requires; memory that the kernel writes to is live.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b,
            in("rdx") c, in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    // SAFETY: as above. The kernel preserves no more of the SVE registers than the C ABI does.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc #0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b,
            in("x2") c, in("x3") d, in("x4") e, in("x5") f, clobber_abi("C"));
    }
    // SAFETY: as above. The kernel discards the vector registers, which the C ABI does not preserve either.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        asm!("ecall", in("a7") number, inlateout("a0") a as isize => result, in("a1") b,
            in("a2") c, in("a3") d, in("a4") e, in("a5") f, clobber_abi("C"));
    }
    result
}
