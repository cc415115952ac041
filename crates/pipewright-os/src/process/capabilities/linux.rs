//! One harmless call for each facility.

use std::fs;
use std::io;

use super::Facility;
use super::entry::{facility, open_files, processes, value};

pub(super) fn facilities() -> Vec<Facility> {
    vec![
        facility(
            "clone3",
            clone3(),
            "starting children; without it signal handlers are reset one by one",
        ),
        facility(
            "pidfd",
            pidfd(),
            "waiting and signalling without the risk of a reused pid; without it a thread per child waits for its exit",
        ),
        facility(
            "pidfd_info",
            pidfd_info(),
            "the exit status of a child that other code reaped; without it the status is lost, which is an error",
        ),
        facility(
            "pidfd group signal",
            pidfd_group(),
            "signalling a group whose leader is gone; without it the leader is kept unreaped",
        ),
        facility(
            "close_range",
            close_range(),
            "closing the handles that a child does not inherit; without it /proc/self/fd is read",
        ),
        facility(
            "proc children",
            proc_children(),
            "finding the descendants of a child; without it a kill reaches only the child and its group",
        ),
        facility(
            "cgroup v2",
            cgroup(),
            "containing a whole tree and killing it at once; without it a supervisor contains it",
        ),
        facility(
            "supervisor",
            crate::process::spawn::try_supervisor().map(|()| String::new()),
            "containing a tree without privileges and ending it with its program; without it a process group contains it",
        ),
        facility(
            "memfd",
            memfd(),
            "the supervisor's program; shared memory between host and workers",
        ),
        facility("io_uring", io_uring(), "asynchronous disk I/O"),
        value(
            "open handles",
            open_files(),
            "the number of handles that this process may have open",
        ),
        value("processes", processes(), "the number of processes that this user may have"),
        value(
            "pipe size",
            file_text("/proc/sys/fs/pipe-max-size"),
            "the largest pipe in bytes; a stream that fills its pipe gets 1 MiB",
        ),
        value(
            "kernel",
            file_text("/proc/sys/kernel/osrelease"),
            "5.10 is the oldest supported version",
        ),
    ]
}

fn forced_off(off: bool) -> io::Result<()> {
    if off { Err(io::Error::other("left out of this build")) } else { Ok(()) }
}

/// Judges the result of a call that is deliberately invalid: a kernel that knows the call returns
/// `complaint`.
fn is_known(result: libc::c_long, complaint: i32) -> io::Result<String> {
    if result >= 0 {
        return Ok(String::new());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(complaint) { Ok(String::new()) } else { Err(error) }
}

fn clone3() -> io::Result<String> {
    forced_off(crate::base::fallback::NO_CLONE3)?;
    // A struct of size 0: EINVAL if the kernel knows the call (clone(2)).
    // SAFETY: the kernel reads nothing from a struct of size 0.
    is_known(unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null::<u8>(), 0) }, libc::EINVAL)
}

fn own_pidfd() -> io::Result<std::os::fd::OwnedFd> {
    forced_off(crate::base::fallback::NO_PIDFD)?;
    let flags = rustix::process::PidfdFlags::empty();
    Ok(rustix::process::pidfd_open(rustix::process::getpid(), flags)?)
}

fn pidfd() -> io::Result<String> {
    own_pidfd().map(|_| String::new())
}

fn pidfd_info() -> io::Result<String> {
    let pidfd = own_pidfd()?;
    // SAFETY: plain integers.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    // SAFETY: the request names the size of the struct that is passed.
    let result = unsafe {
        libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&pidfd), libc::PIDFD_GET_INFO, &raw mut info)
    };
    if result == 0 { Ok(String::new()) } else { Err(io::Error::last_os_error()) }
}

fn pidfd_group() -> io::Result<String> {
    let pidfd = own_pidfd()?;
    // Signal 0 is not delivered. ESRCH: the flag is known, and this process leads no group.
    // SAFETY: numbers and no siginfo.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            std::os::fd::AsRawFd::as_raw_fd(&pidfd),
            0,
            std::ptr::null::<libc::siginfo_t>(),
            4,
        )
    };
    is_known(result, libc::ESRCH)
}

fn close_range() -> io::Result<String> {
    forced_off(crate::base::fallback::NO_CLOSE_RANGE)?;
    // The largest possible number is not open, so no handle is marked.
    let last = libc::c_uint::MAX;
    // SAFETY: numbers.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, last, last, libc::CLOSE_RANGE_CLOEXEC) };
    is_known(result, 0)
}

fn proc_children() -> io::Result<String> {
    fs::read_to_string("/proc/thread-self/children").map(|_| String::new())
}

/// Checks that a cgroup could be made below the cgroup of this process, and returns its path.
fn cgroup() -> io::Result<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mount = mounts
        .lines()
        .find(|line| line.split(" - ").nth(1).is_some_and(|fs| fs.starts_with("cgroup2 ")))
        .and_then(|line| line.split(' ').nth(4))
        .ok_or_else(|| io::Error::other("not mounted"))?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let path = format!("{mount}{}", own.trim_end_matches('/'));
    rustix::fs::access(&path, rustix::fs::Access::WRITE_OK)?;
    Ok(path)
}

fn memfd() -> io::Result<String> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create("pipewright-probe", flags)?;
    Ok(String::new())
}

fn io_uring() -> io::Result<String> {
    let disabled = file_text("/proc/sys/kernel/io_uring_disabled");
    // No struct at all: EFAULT if the call is known and allowed.
    // SAFETY: the kernel checks the pointer, and returns an error for null.
    let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, std::ptr::null::<u8>()) };
    is_known(result, libc::EFAULT).map_err(|error| {
        io::Error::new(error.kind(), format!("{error}; kernel.io_uring_disabled is {disabled}"))
    })
}

fn file_text(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|error| error.to_string(), |text| text.trim().to_owned())
}
