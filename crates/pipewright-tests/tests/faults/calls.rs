//! The system calls that can be made to fail, and the errors that each of them can have on its object.

use libc::{
    EAGAIN, EBUSY, ECONNRESET, EDQUOT, EINTR, EINVAL, EIO, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC,
    ENOSYS, EOPNOTSUPP, EPERM, EPIPE, ETOOMANYREFS, c_long,
};

/// The names of the errors.
pub(crate) const ERRORS: [(i32, &str); 17] = [
    (EAGAIN, "EAGAIN"),
    (EBUSY, "EBUSY"),
    (ECONNRESET, "ECONNRESET"),
    (EDQUOT, "EDQUOT"),
    (EINTR, "EINTR"),
    (EINVAL, "EINVAL"),
    (EIO, "EIO"),
    (EMFILE, "EMFILE"),
    (ENFILE, "ENFILE"),
    (ENOBUFS, "ENOBUFS"),
    (ENOMEM, "ENOMEM"),
    (ENOSPC, "ENOSPC"),
    (ENOSYS, "ENOSYS"),
    (EOPNOTSUPP, "EOPNOTSUPP"),
    (EPERM, "EPERM"),
    (EPIPE, "EPIPE"),
    (ETOOMANYREFS, "ETOOMANYREFS"),
];

pub(crate) fn error_name(errno: i32) -> &'static str {
    ERRORS.iter().find(|(number, _)| *number == errno).map_or("?", |(_, name)| name)
}

/// Returns true for an error that says that the kernel has no such thing or does not allow it: it may be remembered.
pub(crate) fn is_refusal(errno: i32) -> bool {
    [ENOSYS, EPERM, EOPNOTSUPP, EINVAL].contains(&errno)
}

/// The object of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Object {
    /// A path without what differs from run to run, a kind such as `pipe`, or a number.
    pub(crate) label: String,
    /// True if a call on it does not wait.
    pub(crate) nonblocking: bool,
    pub(crate) is_directory: bool,
}

impl Object {
    fn is_in(&self, folder: &str) -> bool {
        self.label.starts_with(folder)
    }

    /// Returns true for a file on a disk.
    fn is_file(&self) -> bool {
        self.is_in("$")
            || self.is_in("/") && !["/proc", "/sys", "/dev"].iter().any(|it| self.is_in(it))
    }
}

/// The argument that tells the object of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Nothing,
    Fd(usize),
    /// The address of a path.
    Path(usize),
    /// A number that says which of several calls it is.
    Word(usize),
}

/// Returns every call that is looked at: its number, its name and its object.
pub(crate) fn all() -> Vec<(c_long, &'static str, Of)> {
    use Of::{Fd, Nothing, Path, Word};
    let mut all = vec![
        (libc::SYS_openat, "openat", Path(1)),
        (libc::SYS_openat2, "openat2", Path(1)),
        (libc::SYS_read, "read", Fd(0)),
        (libc::SYS_readv, "readv", Fd(0)),
        (libc::SYS_pread64, "pread64", Fd(0)),
        (libc::SYS_preadv2, "preadv2", Fd(0)),
        (libc::SYS_write, "write", Fd(0)),
        (libc::SYS_writev, "writev", Fd(0)),
        (libc::SYS_pwrite64, "pwrite64", Fd(0)),
        (libc::SYS_pwritev2, "pwritev2", Fd(0)),
        (libc::SYS_fsync, "fsync", Fd(0)),
        (libc::SYS_fdatasync, "fdatasync", Fd(0)),
        (libc::SYS_sync_file_range, "sync_file_range", Fd(0)),
        (libc::SYS_ftruncate, "ftruncate", Fd(0)),
        (libc::SYS_fallocate, "fallocate", Fd(0)),
        (libc::SYS_close, "close", Fd(0)),
        (libc::SYS_close_range, "close_range", Nothing),
        (libc::SYS_pipe2, "pipe2", Nothing),
        (libc::SYS_socketpair, "socketpair", Nothing),
        (libc::SYS_socket, "socket", Nothing),
        (libc::SYS_memfd_create, "memfd_create", Nothing),
        (libc::SYS_epoll_create1, "epoll_create1", Nothing),
        (libc::SYS_epoll_ctl, "epoll_ctl", Word(1)),
        (libc::SYS_epoll_pwait, "epoll_pwait", Nothing),
        (libc::SYS_eventfd2, "eventfd2", Nothing),
        (libc::SYS_timerfd_create, "timerfd_create", Nothing),
        (libc::SYS_signalfd4, "signalfd4", Nothing),
        (libc::SYS_inotify_init1, "inotify_init1", Nothing),
        (libc::SYS_pidfd_open, "pidfd_open", Nothing),
        (libc::SYS_pidfd_getfd, "pidfd_getfd", Nothing),
        (libc::SYS_pidfd_send_signal, "pidfd_send_signal", Word(1)),
        (libc::SYS_kill, "kill", Word(1)),
        (libc::SYS_dup, "dup", Fd(0)),
        (libc::SYS_dup3, "dup3", Fd(0)),
        (libc::SYS_fcntl, "fcntl", Word(1)),
        (libc::SYS_clone, "clone", Nothing),
        (libc::SYS_clone3, "clone3", Nothing),
        (libc::SYS_execve, "execve", Path(0)),
        (libc::SYS_execveat, "execveat", Path(1)),
        (libc::SYS_wait4, "wait4", Nothing),
        (libc::SYS_waitid, "waitid", Nothing),
        (libc::SYS_ppoll, "ppoll", Nothing),
        (libc::SYS_pselect6, "pselect6", Nothing),
        (libc::SYS_sendmsg, "sendmsg", Fd(0)),
        (libc::SYS_sendto, "sendto", Fd(0)),
        (libc::SYS_recvmsg, "recvmsg", Fd(0)),
        (libc::SYS_recvfrom, "recvfrom", Fd(0)),
        (libc::SYS_mmap, "mmap", Fd(4)),
        (libc::SYS_ioctl, "ioctl", Word(1)),
        (libc::SYS_io_uring_setup, "io_uring_setup", Nothing),
        (libc::SYS_io_uring_enter, "io_uring_enter", Nothing),
        (libc::SYS_io_uring_register, "io_uring_register", Word(1)),
        (libc::SYS_io_setup, "io_setup", Nothing),
        (libc::SYS_io_submit, "io_submit", Nothing),
        (libc::SYS_io_getevents, "io_getevents", Nothing),
        (libc::SYS_mkdirat, "mkdirat", Path(1)),
        (libc::SYS_unlinkat, "unlinkat", Path(1)),
        (libc::SYS_renameat, "renameat", Path(1)),
        (libc::SYS_renameat2, "renameat2", Path(1)),
        (libc::SYS_getdents64, "getdents64", Fd(0)),
        (libc::SYS_readlinkat, "readlinkat", Path(1)),
        (libc::SYS_statx, "statx", Path(1)),
        (libc::SYS_newfstatat, "newfstatat", Path(1)),
        (libc::SYS_fstat, "fstat", Fd(0)),
        (libc::SYS_flock, "flock", Fd(0)),
        (libc::SYS_setpgid, "setpgid", Nothing),
        (libc::SYS_setsid, "setsid", Nothing),
        (libc::SYS_splice, "splice", Nothing),
        (libc::SYS_tee, "tee", Nothing),
        (libc::SYS_vmsplice, "vmsplice", Nothing),
        // Never fails here: it tells when a program has begun.
        (libc::SYS_sigaltstack, "sigaltstack", Nothing),
    ];
    #[cfg(target_arch = "x86_64")]
    all.extend([
        (libc::SYS_open, "open", Path(0)),
        (libc::SYS_pipe, "pipe", Nothing),
        (libc::SYS_poll, "poll", Nothing),
        (libc::SYS_epoll_wait, "epoll_wait", Nothing),
        (libc::SYS_dup2, "dup2", Fd(0)),
        (libc::SYS_vfork, "vfork", Nothing),
        (libc::SYS_fork, "fork", Nothing),
        (libc::SYS_mkdir, "mkdir", Path(0)),
        (libc::SYS_rmdir, "rmdir", Path(0)),
        (libc::SYS_unlink, "unlink", Path(0)),
        (libc::SYS_rename, "rename", Path(0)),
        (libc::SYS_readlink, "readlink", Path(0)),
        (libc::SYS_stat, "stat", Path(0)),
    ]);
    all
}

/// Returns the errors that a call of that name can have on that object. Those that no code can answer are left out: a
/// pipe that ends early, a terminal that hangs up.
pub(crate) fn errors(name: &str, object: &Object, args: &[u64; 6]) -> Vec<i32> {
    let again = object.nonblocking.then_some(EAGAIN);
    let with = |errors: &[i32]| errors.iter().copied().chain(again).collect::<Vec<_>>();
    match name {
        "open" | "openat" | "openat2" => {
            let flags = args[if name == "open" { 1 } else { 2 }] as i32;
            let mut errors = vec![EMFILE, ENFILE, ENOMEM];
            if object.is_file() {
                errors.push(EINTR);
                errors.push(if flags & libc::O_CREAT != 0 { ENOSPC } else { EIO });
            }
            errors
        }
        "read" | "readv" | "pread64" | "preadv2" | "recvfrom" | "recvmsg" => {
            match object.label.as_str() {
                "socket" => with(&[EINTR, ENOMEM, ECONNRESET]),
                "pipe" => with(&[EINTR, ENOMEM]),
                "eventfd" => with(&[]),
                _ if object.is_file() && name == "preadv2" => vec![EAGAIN, EIO, EOPNOTSUPP, EINTR],
                _ if object.is_file() => vec![EIO, EINTR, ENOMEM],
                _ if object.is_in("/proc") || object.is_in("/sys") => vec![ENOMEM],
                _ => with(&[EINTR]),
            }
        }
        "write" | "writev" | "pwrite64" | "pwritev2" | "sendto" | "sendmsg" => {
            match object.label.as_str() {
                "socket" if name == "sendmsg" => {
                    with(&[EINTR, ENOMEM, ENOBUFS, EPIPE, ETOOMANYREFS])
                }
                "socket" => with(&[EINTR, ENOMEM, ENOBUFS, EPIPE]),
                // A pipe without readers stays so: its writer need not close it, and counts what was not read.
                "pipe" => with(&[EINTR, ENOMEM]),
                "eventfd" => Vec::new(),
                "memfd" => vec![ENOSPC, ENOMEM, EIO, EINTR],
                _ if object.is_file() => vec![EIO, ENOSPC, EDQUOT, EINTR],
                _ if object.is_in("/sys") => vec![EAGAIN, EBUSY, ENOMEM, EIO, EINTR],
                _ => with(&[EINTR]),
            }
        }
        "fsync" | "fdatasync" | "sync_file_range" => {
            vec![EIO, EINTR, ENOSPC, EDQUOT, EAGAIN, EINVAL, EOPNOTSUPP, ENOSYS]
        }
        "ftruncate" => vec![EIO, ENOSPC, ENOMEM, EINTR],
        "fallocate" => vec![EIO, ENOSPC, EINTR, EOPNOTSUPP],
        // The descriptor stays open if its call does not happen, which only a file survives. The errors are those of
        // the filesystem's `flush`, which writes back what a file still holds. Filesystems have none for their
        // directories, not even those of a network (fuse_dir_operations, nfs_dir_operations, cifs_dir_ops,
        // ceph_dir_fops), and std panics at such an error of a directory.
        "close" if object.is_file() && !object.is_directory => vec![EIO, ENOSPC, EDQUOT, EINTR],
        "close_range" => vec![ENOMEM, ENOSYS, EPERM],
        "pipe" | "pipe2" | "socketpair" | "socket" | "timerfd_create" | "signalfd4"
        | "inotify_init1" | "epoll_create1" | "eventfd2" => vec![EMFILE, ENFILE, ENOMEM],
        "memfd_create" => vec![EMFILE, ENFILE, ENOMEM, ENOSYS, EPERM],
        "pidfd_open" | "pidfd_getfd" => vec![EMFILE, ENFILE, ENOMEM, ENOSYS, EPERM],
        "epoll_ctl" => vec![ENOMEM, ENOSPC],
        "poll" | "ppoll" | "pselect6" => vec![EINTR, ENOMEM],
        "epoll_wait" | "epoll_pwait" | "wait4" | "waitid" => vec![EINTR],
        "pidfd_send_signal" => vec![EPERM],
        "kill" if args[1] != 0 => vec![EPERM],
        "dup" | "dup2" | "dup3" => vec![EMFILE, EBUSY, EINTR],
        "fcntl" => match args[1] as i32 {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => vec![EMFILE],
            libc::F_SETPIPE_SZ => vec![EPERM, EBUSY, ENOMEM],
            libc::F_SETLK | libc::F_OFD_SETLK => vec![EAGAIN, EIO],
            _ => Vec::new(),
        },
        "clone3" => vec![EAGAIN, ENOMEM, ENOSYS, EPERM],
        "clone" | "fork" | "vfork" => vec![EAGAIN, ENOMEM],
        "execve" | "execveat" => vec![ENOMEM, EAGAIN, EIO, EMFILE, EPERM],
        // The memory of allocators and of threads is not the product's.
        "mmap"
            if args[3] as i32 & (libc::MAP_SHARED | libc::MAP_ANONYMOUS) != libc::MAP_ANONYMOUS =>
        {
            vec![ENOMEM, EAGAIN, EPERM]
        }
        "ioctl" => vec![EIO, EINTR, ENOMEM, EPERM],
        "io_uring_setup" => vec![EMFILE, ENOMEM, ENOSYS, EPERM],
        "io_uring_enter" => vec![EINTR, EAGAIN, EBUSY, ENOMEM],
        "io_uring_register" => vec![ENOMEM, EBUSY, EINVAL],
        "io_setup" => vec![EAGAIN, ENOMEM, ENOSYS],
        "io_submit" => vec![EAGAIN, ENOMEM],
        "io_getevents" => vec![EINTR],
        "mkdir" | "mkdirat" => vec![ENOSPC, ENOMEM, EIO, EDQUOT, EPERM],
        "rmdir" | "unlink" | "unlinkat" => vec![EBUSY, EIO, ENOMEM, EPERM],
        "rename" | "renameat" | "renameat2" => vec![EIO, ENOSPC, ENOMEM],
        // A descriptor's own facts are in memory.
        "stat" | "statx" | "newfstatat" if object.label.is_empty() => Vec::new(),
        "getdents64" | "readlink" | "readlinkat" | "stat" | "statx" | "newfstatat" => {
            vec![EIO, ENOMEM]
        }
        "fstat" if object.is_file() => vec![EIO],
        "flock" => vec![EAGAIN, EINTR, ENOMEM],
        "setpgid" | "setsid" => vec![EPERM],
        "splice" | "tee" | "vmsplice" => with(&[EINTR, ENOMEM, EINVAL]),
        _ => Vec::new(),
    }
}
