//! The numbers of the system calls that the supervisor makes.

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const LSEEK: usize = 8;
    pub const MMAP: usize = 9;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const GETPID: usize = 39;
    pub const SENDTO: usize = 44;
    pub const SENDMSG: usize = 46;
    pub const RECVMSG: usize = 47;
    pub const EXECVE: usize = 59;
    pub const WAIT4: usize = 61;
    pub const KILL: usize = 62;
    pub const FCNTL: usize = 72;
    pub const CHDIR: usize = 80;
    pub const FCHDIR: usize = 81;
    pub const UMASK: usize = 95;
    pub const SETPGID: usize = 109;
    pub const SETSID: usize = 112;
    pub const RT_SIGPENDING: usize = 127;
    pub const GETPRIORITY: usize = 140;
    pub const SETPRIORITY: usize = 141;
    pub const PRCTL: usize = 157;
    pub const EXIT_GROUP: usize = 231;
    pub const GETDENTS64: usize = 217;
    pub const WAITID: usize = 247;
    pub const OPENAT: usize = 257;
    pub const UNLINKAT: usize = 263;
    pub const FACCESSAT: usize = 269;
    pub const PPOLL: usize = 271;
    pub const SIGNALFD4: usize = 289;
    pub const DUP3: usize = 292;
    pub const PRLIMIT64: usize = 302;
}

#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
mod numbers {
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const CLOSE: usize = 57;
    pub const LSEEK: usize = 62;
    pub const MMAP: usize = 222;
    pub const RT_SIGACTION: usize = 134;
    pub const RT_SIGPROCMASK: usize = 135;
    pub const IOCTL: usize = 29;
    pub const GETPID: usize = 172;
    pub const SENDTO: usize = 206;
    pub const SENDMSG: usize = 211;
    pub const RECVMSG: usize = 212;
    pub const EXECVE: usize = 221;
    pub const WAIT4: usize = 260;
    pub const KILL: usize = 129;
    pub const FCNTL: usize = 25;
    pub const CHDIR: usize = 49;
    pub const FCHDIR: usize = 50;
    pub const UMASK: usize = 166;
    pub const SETPGID: usize = 154;
    pub const SETSID: usize = 157;
    pub const RT_SIGPENDING: usize = 136;
    pub const GETPRIORITY: usize = 141;
    pub const SETPRIORITY: usize = 140;
    pub const PRCTL: usize = 167;
    pub const EXIT_GROUP: usize = 94;
    pub const GETDENTS64: usize = 61;
    pub const WAITID: usize = 95;
    pub const OPENAT: usize = 56;
    pub const UNLINKAT: usize = 35;
    pub const FACCESSAT: usize = 48;
    pub const PPOLL: usize = 73;
    pub const SIGNALFD4: usize = 74;
    pub const DUP3: usize = 24;
    pub const PRLIMIT64: usize = 261;
}

pub use numbers::*;
