//! One raw system call: no library, no `errno`, nothing that another thread could see.

/// Makes the call and returns its result; a negative result is an error number. Each caller passes what its call requires, and
/// memory that the kernel writes to is live.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(crate) fn call(number: usize, arguments: [usize; 6]) -> isize {
    use core::arch::asm;
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: as the caller promises.
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

/// Makes the call through the C library, on other processors. There nothing is supervised, so the thread whose `errno` this
/// changes is inside clone.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(crate) fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: as the caller promises.
    let result = unsafe { libc::syscall(number as libc::c_long, a, b, c, d, e, f) };
    if result != -1 {
        return result as isize;
    }
    // SAFETY: no arguments; the location is that of the thread whose storage this process has.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: a live number.
    -unsafe { *location } as isize
}
