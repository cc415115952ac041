//! The numbers of the system calls that both programs make. The supervisor has no library that knows them.

/// Defines numbers: that on x86-64, that on aarch64 and riscv64, and the C library's for the others, where only the host runs.
macro_rules! numbers {
    ($($name:ident = $x86_64:literal, $generic:literal, $other:ident;)*) => {
        $(
            #[cfg(target_arch = "x86_64")]
            pub(crate) const $name: usize = $x86_64;
            #[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
            pub(crate) const $name: usize = $generic;
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
            pub(crate) const $name: usize = libc::$other as usize;
        )*

        #[cfg(test)]
        const ALL: &[(usize, libc::c_long)] = &[$(($name, libc::$other)),*];
    };
}

numbers! {
    READ = 0, 63, SYS_read;
    WRITE = 1, 64, SYS_write;
    CLOSE = 3, 57, SYS_close;
    LSEEK = 8, 62, SYS_lseek;
    MMAP = 9, 222, SYS_mmap;
    RT_SIGACTION = 13, 134, SYS_rt_sigaction;
    RT_SIGPROCMASK = 14, 135, SYS_rt_sigprocmask;
    IOCTL = 16, 29, SYS_ioctl;
    GETPID = 39, 172, SYS_getpid;
    SENDTO = 44, 206, SYS_sendto;
    SENDMSG = 46, 211, SYS_sendmsg;
    RECVMSG = 47, 212, SYS_recvmsg;
    EXECVE = 59, 221, SYS_execve;
    WAIT4 = 61, 260, SYS_wait4;
    KILL = 62, 129, SYS_kill;
    FCNTL = 72, 25, SYS_fcntl;
    CHDIR = 80, 49, SYS_chdir;
    FCHDIR = 81, 50, SYS_fchdir;
    UMASK = 95, 166, SYS_umask;
    SETPGID = 109, 154, SYS_setpgid;
    SETSID = 112, 157, SYS_setsid;
    RT_SIGPENDING = 127, 136, SYS_rt_sigpending;
    GETPRIORITY = 140, 141, SYS_getpriority;
    SETPRIORITY = 141, 140, SYS_setpriority;
    PRCTL = 157, 167, SYS_prctl;
    GETDENTS64 = 217, 61, SYS_getdents64;
    EXIT_GROUP = 231, 94, SYS_exit_group;
    WAITID = 247, 95, SYS_waitid;
    OPENAT = 257, 56, SYS_openat;
    UNLINKAT = 263, 35, SYS_unlinkat;
    FACCESSAT = 269, 48, SYS_faccessat;
    PPOLL = 271, 73, SYS_ppoll;
    SIGNALFD4 = 289, 74, SYS_signalfd4;
    DUP3 = 292, 24, SYS_dup3;
    PRLIMIT64 = 302, 261, SYS_prlimit64;
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_numbers_are_those_of_the_c_library() {
        assert!(super::ALL.iter().all(|(ours, theirs)| *ours == *theirs as usize));
    }
}
