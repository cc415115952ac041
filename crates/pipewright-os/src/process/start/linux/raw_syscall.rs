//! System calls without the C library, for processes that run in the host's memory beside it.
//!
//! The C library's calls would store their errors in the `errno` of the host's thread whose storage such a
//! process shares.

use std::ffi::{CStr, c_char};
use std::os::fd::RawFd;
use std::ptr;

use crate::base::test_hooks::{Forced, is_forced};
use crate::process::nolibc::{PollFd, call, message, poll, steps};

/// Makes a call by its number. The error is an error number.
pub(super) fn syscall(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, i32> {
    let result = call(number as usize, arguments);
    usize::try_from(result).map_err(|_| -result as i32)
}

/// Yields the processor: if processors are few, the command and the host, which are waited for, run first.
pub(super) fn yield_processor() {
    let _ = syscall(libc::SYS_sched_yield, [0; 6]);
}

/// Makes this process a subreaper (Linux 3.4). The setting belongs to the process and survives exec.
pub(super) fn become_subreaper() {
    let _ = syscall(libc::SYS_prctl, [libc::PR_SET_CHILD_SUBREAPER as usize, 1, 0, 0, 0, 0]);
}

/// Makes children that end wait to be reaped, and returns true if SIGCHLD was ignored until now. An ignored
/// SIGCHLD stays ignored over clone and exec, and then ends are not reported.
pub(super) fn reset_sigchld() -> bool {
    steps::set_handler(libc::SIGCHLD as usize, steps::DEFAULT) == steps::IGNORED
}

/// Opens a pidfd of this process, for its child.
pub(super) fn open_own_pidfd() -> Result<RawFd, i32> {
    syscall(libc::SYS_pidfd_open, [steps::own_pid() as usize, 0, 0, 0, 0, 0]).map(|fd| fd as RawFd)
}

/// Opens the list of the children of this process. The open file still lists them after exec.
pub(super) fn open_children() -> Result<RawFd, i32> {
    let path = c"/proc/thread-self/children".as_ptr() as usize;
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path, flags, 0, 0, 0]).map(|fd| fd as RawFd)
}

/// Creates an eventfd that can be signalled once and waited for by a process that shares nothing else.
pub(super) fn open_eventfd() -> Result<RawFd, i32> {
    syscall(libc::SYS_eventfd2, [0, libc::EFD_CLOEXEC as usize, 0, 0, 0, 0]).map(|fd| fd as RawFd)
}

/// Waits until the eventfd is signalled. `EPERM`: the process of that pidfd has ended before.
pub(super) fn wait_for_eventfd(eventfd: RawFd, pidfd: RawFd) -> Result<(), i32> {
    let events = libc::POLLIN;
    let mut polled = [eventfd, pidfd].map(|fd| PollFd { fd, events, revents: 0 });
    if let error @ ..0 = poll(&mut polled, None) {
        return Err(-error as i32);
    }
    let [eventfd, _] = polled;
    if eventfd.revents & libc::POLLIN != 0 { Ok(()) } else { Err(libc::EPERM) }
}

/// Fails if a sandbox refuses [`send`], which it does before the kernel looks for the socket.
pub(super) fn probe_send() -> Result<(), i32> {
    match send(-1, &[], None) {
        Ok(()) | Err(libc::EBADF) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Kills a child that has not been reaped. Returns false if that is refused.
pub(super) fn kill(pid: i32) -> bool {
    syscall(libc::SYS_kill, [pid as usize, libc::SIGKILL as usize, 0, 0, 0, 0]).is_ok()
}

/// Exits. The status is the error that this process has met, for the host.
pub(super) fn exit(errno: i32) -> ! {
    loop {
        let _ = syscall(libc::SYS_exit_group, [errno as usize, 0, 0, 0, 0, 0]);
    }
}

/// Sends words, and a handle with them if there is one, and waits for room.
pub(super) fn send(socket: RawFd, words: &[i64], handle: Option<RawFd>) -> Result<(), i32> {
    match message::send(socket, words, handle, 0) {
        errno @ ..0 => Err(-errno as i32),
        _ => Ok(()),
    }
}

/// Closes the handles that the program does not need, so that there is room if the host has none left.
pub(super) fn close_all_except(image: RawFd, handles: &[RawFd]) {
    // Ignored: `exec_image` fails for the same reason.
    let _ = close_from(0, handles.iter().copied().chain([image]));
}

/// Gives this process exactly these handles, under the numbers from 0 on, and executes the image. A negative handle
/// leaves its number closed. Returns only if something failed, with the error. Then the handles have other numbers, by
/// which this process can use them.
pub(super) fn exec_image<const N: usize>(
    image: RawFd,
    handles: &mut [RawFd; N],
    arguments: [&CStr; 9],
) -> i32 {
    // Above all target numbers, and closed by the exec. One that is there already takes no other number.
    let move_above_targets = |fd: RawFd| {
        let change = |command: libc::c_int, argument: usize| {
            syscall(libc::SYS_fcntl, [fd as usize, command as usize, argument, 0, 0, 0])
        };
        if fd as usize >= N {
            return change(libc::F_SETFD, libc::FD_CLOEXEC as usize).map(|_| fd);
        }
        change(libc::F_DUPFD_CLOEXEC, N).map(|copy| copy as RawFd)
    };
    let image = match move_above_targets(image) {
        Ok(image) => image,
        Err(errno) => return errno,
    };
    for handle in handles.iter_mut().filter(|handle| **handle >= 0) {
        match move_above_targets(*handle) {
            Ok(moved) => *handle = moved,
            Err(errno) => return errno,
        }
    }
    // A handle that the host has opened without the flag is closed here.
    let moved = handles.iter().copied().filter(|fd| *fd >= 0).chain([image]);
    if let Err(errno) = close_from(N as RawFd, moved) {
        return errno;
    }
    for (number, fd) in handles.iter().enumerate() {
        if *fd < 0 {
            // Ignored: the number was not open.
            let _ = syscall(libc::SYS_close, [number, 0, 0, 0, 0, 0]);
            continue;
        }
        if let Err(errno) = syscall(libc::SYS_dup3, [*fd as usize, number, 0, 0, 0, 0]) {
            return errno;
        }
    }
    let [a, b, c, d, e, f, g, h, i] = arguments.map(CStr::as_ptr);
    let argv: [*const c_char; 10] = [a, b, c, d, e, f, g, h, i, ptr::null()];
    let envp: [*const c_char; 1] = [ptr::null()];
    let (argv, envp) = (argv.as_ptr() as usize, envp.as_ptr() as usize);
    let empty = c"".as_ptr() as usize;
    let done = syscall(
        libc::SYS_execveat,
        [image as usize, empty, argv, envp, libc::AT_EMPTY_PATH as usize, 0],
    );
    done.err().unwrap_or(libc::EIO)
}

/// Closes the handles from a number on, except the listed ones.
///
/// Uses `close_range` without flags (Linux 5.9): `CLOSE_RANGE_CLOEXEC` came with 5.11. If the call is refused, closes
/// what `/proc/self/fd` lists.
///
/// # Errors
/// `close_range` is refused, and `/proc/self/fd` cannot be read. That needs a handle; if none is free, one is made so.
pub(super) fn close_from(
    from: RawFd,
    except: impl Iterator<Item = RawFd> + Clone,
) -> Result<(), i32> {
    if !is_forced(Forced::NoCloseRange) && close_ranges(from, except.clone()).is_ok() {
        return Ok(());
    }
    let is_kept = |fd: RawFd| fd < from || except.clone().any(|kept| kept == fd);
    let mut next = from;
    loop {
        let closed = each_open(|fd| {
            if !is_kept(fd) {
                // Ignored: Linux closes the handle even if it reports an error (close(2)).
                let _ = syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
            }
        });
        if closed != Err(libc::EMFILE) {
            return closed;
        }
        // All numbers below the limit are open, so the first one that is not kept is.
        while is_kept(next) {
            next += 1;
        }
        if syscall(libc::SYS_close, [next as usize, 0, 0, 0, 0, 0]) == Err(libc::EBADF) {
            return closed;
        }
        next += 1;
    }
}

/// Closes the ranges between the listed handles.
fn close_ranges(mut from: RawFd, except: impl Iterator<Item = RawFd> + Clone) -> Result<(), i32> {
    let close_range = |from: RawFd, to: RawFd| {
        syscall(libc::SYS_close_range, [from as usize, to as usize, 0, 0, 0, 0]).map(drop)
    };
    loop {
        let kept = except.clone().filter(|fd| *fd >= from);
        let Some(next) = kept.min() else { return close_range(from, RawFd::MAX) };
        if next > from {
            close_range(from, next - 1)?;
        }
        from = next + 1;
    }
}

/// Calls a function with each handle that `/proc/self/fd` lists. Not with every number up to the limit, because there
/// can be a billion. The function may close the handle.
///
/// # Errors
/// `/proc/self/fd` cannot be read.
pub(super) fn each_open(mut found: impl FnMut(RawFd)) -> Result<(), i32> {
    let path = c"/proc/self/fd".as_ptr() as usize;
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
    let list = syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path, flags, 0, 0, 0])?;
    let mut buffer = DirBuffer([0; 1024]);
    let result = loop {
        let arguments = [list, buffer.0.as_mut_ptr() as usize, buffer.0.len(), 0, 0, 0];
        match syscall(libc::SYS_getdents64, arguments) {
            Ok(0) => break Ok(()),
            Ok(length) => each_entry(buffer.0.get(..length).unwrap_or(&[]), |fd| {
                if fd as usize != list {
                    found(fd);
                }
            }),
            Err(errno) => break Err(errno),
        }
    };
    // Ignored: as above.
    let _ = syscall(libc::SYS_close, [list, 0, 0, 0, 0, 0]);
    result
}

/// A buffer with the alignment of the kernel's directory entries.
#[repr(align(8))]
struct DirBuffer([u8; 1024]);

/// Finds the handles in a list of struct linux_dirent64: inode 8, offset 8, length 2, type 1, then the name
/// (getdents(2)).
fn each_entry(mut entries: &[u8], mut found: impl FnMut(RawFd)) {
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    while let Some(&[low, high]) = entries.get(LENGTH_AT..LENGTH_AT + 2) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        if let Some(fd) = number(entries.get(NAME_AT..length).unwrap_or(&[])) {
            found(fd);
        }
        match entries.get(length.max(1)..) {
            Some(rest) => entries = rest,
            None => return,
        }
    }
}

fn number(name: &[u8]) -> Option<RawFd> {
    let mut number: RawFd = 0;
    let mut digits = 0;
    for byte in name.iter().take_while(|byte| **byte != 0) {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(RawFd::from(byte - b'0'))?;
        digits += 1;
    }
    (digits > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use super::*;
    use crate::base::generation::tests::in_a_fork;

    #[test]
    fn handles_can_be_used_after_an_exec_that_failed() {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let no_program = File::open("/dev/null").unwrap();
        let is_written = in_a_fork(|| {
            let mut handles = [file.as_raw_fd(), -1, -1];
            let errno = exec_image(no_program.as_raw_fd(), &mut handles, [c""; 9]);
            let place = b"x".as_ptr() as usize;
            let written = syscall(libc::SYS_write, [handles[0] as usize, place, 1, 0, 0, 0]);
            errno == libc::EACCES && written == Ok(1) && handles[1..] == [-1, -1]
        });
        assert!(is_written);
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 1);
    }

    #[test]
    fn only_whole_numbers_are_descriptors() {
        assert_eq!(number(b"17\0junk"), Some(17));
        for name in [&b".\0"[..], b"..\0", b"\0", b"1a\0", b"99999999999\0"] {
            assert_eq!(number(name), None);
        }
    }
}
