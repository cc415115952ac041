//! A process whose system calls are looked at by this one, which can make one of them fail: a filter that asks
//! (seccomp_unotify(2)).

#![expect(
    clippy::disallowed_methods,
    reason = "it forks what it injects errors into, and reaps every process of a run"
)]

use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use libc::{c_int, c_long, c_void};

/// The calls of a process and of all its later children.
pub(crate) struct Listener(OwnedFd);

/// A call that waits for its answer.
pub(crate) struct Asked {
    id: u64,
    /// The thread that makes it.
    pub(crate) thread: i32,
    pub(crate) number: c_long,
    pub(crate) args: [u64; 6],
}

/// Starts a process that runs `body` with these calls looked at, and then ends. This process has one thread.
pub(crate) fn fork(numbers: &[c_long], body: impl FnOnce()) -> io::Result<(i32, Listener)> {
    let (mut reader, mut writer) = pipe()?;
    // SAFETY: this process has one thread, so that the copy may do everything.
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        end_with_parent();
        drop(reader);
        let is_filtered = filtered(numbers, &mut writer).is_ok();
        drop(writer);
        if is_filtered {
            // A panic is in its stderr.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        }
        // SAFETY: nothing of this process is needed any more, and its parent's handlers are not run.
        unsafe { libc::_exit(i32::from(!is_filtered)) };
    }
    drop(writer);
    let mut number = [0; 4];
    io::Read::read_exact(&mut reader, &mut number)?;
    let number = RawFd::from_ne_bytes(number);
    // SAFETY: takes numbers.
    let pidfd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as c_int)?;
    // SAFETY: it was opened above, for nobody else.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    loop {
        // SAFETY: takes numbers.
        let listener =
            unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) } as c_int;
        if listener >= 0 {
            // SAFETY: it was opened above, for nobody else.
            let listener = Listener(unsafe { OwnedFd::from_raw_fd(listener) });
            listener.wake_at_once();
            return Ok((pid, listener));
        }
        let error = io::Error::last_os_error();
        let mut status = 0;
        // SAFETY: a live place for the status.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        if ended != 0 || error.raw_os_error() != Some(libc::EBADF) {
            return Err(io::Error::other(format!("no filter of calls: {error}")));
        }
        std::thread::yield_now();
    }
}

/// Makes this process end when the one that has started it ends.
fn end_with_parent() {
    // SAFETY: takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Starts a process that runs `body` and then ends. This process has one thread.
pub(crate) fn fork_plain(body: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: this process has one thread, so that the copy may do everything.
    let pid = check(unsafe { libc::fork() })?;
    if pid == 0 {
        end_with_parent();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: nothing of this process is needed any more.
        unsafe { libc::_exit(i32::from(result.is_err())) };
    }
    Ok(pid)
}

/// Waits for the end of any child. Returns false if there is none.
pub(crate) fn wait_for_one() -> bool {
    // SAFETY: takes numbers; nobody wants the status.
    unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) > 0 }
}

/// Installs the filter. Its descriptor has the lowest free number, which is written first: afterwards a call may have
/// to wait for the answer of who needs the number.
fn filtered(numbers: &[c_long], writer: &mut File) -> io::Result<()> {
    let free = File::open("/dev/null")?.as_raw_fd();
    let instruction = |code: u32, jt: usize, k: u32| libc::sock_filter {
        code: code as u16,
        jt: u8::try_from(jt).expect("the program is short"),
        jf: 0,
        k,
    };
    // The number of the call is the first word of seccomp_data.
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    // Memory of its own is asked for often, mostly by allocators: the low half of the flags tells.
    let own_memory = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u32;
    program.extend([
        libc::sock_filter { jf: 4, ..instruction(equal, 0, libc::SYS_mmap as u32) },
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 16 + 8 * 3),
        libc::sock_filter { jf: 1, ..instruction(equal, 0, own_memory) },
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
    ]);
    for (index, number) in numbers.iter().enumerate() {
        program.push(instruction(equal, numbers.len() - index, *number as u32));
    }
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_USER_NOTIF));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    io::Write::write_all(writer, &free.to_ne_bytes())?;
    // A signal does not end the wait for an answer, so that no call is asked for twice; before Linux 5.19 it does.
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    for flags in [flags | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, flags] {
        // SAFETY: a live program of that length.
        let listener = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const filter,
            )
        };
        if listener >= 0 {
            assert_eq!(listener as RawFd, free, "the lowest free number");
            // SAFETY: it was opened above. The other process has its copy once this call is answered.
            check(unsafe { libc::close(listener as RawFd) })?;
            return Ok(());
        }
    }
    Err(io::Error::last_os_error())
}

impl Listener {
    /// Makes the processes take turns without a detour through the scheduler, which halves the time of a call. Before
    /// Linux 6.6 that cannot be had.
    fn wake_at_once(&self) {
        const SYNC_WAKE_UP: u64 = 1;
        // SAFETY: takes numbers. Its failure is ignored, as above.
        unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP)
        };
    }

    /// Waits for a call, for at most that time. `Ok(None)`: there was none. `Err`: no process is left that could make
    /// one.
    pub(crate) fn next(&self, milliseconds: i32) -> Result<Option<Asked>, ()> {
        let mut polled = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry.
        let count = unsafe { libc::poll(&raw mut polled, 1, milliseconds) };
        if count <= 0 {
            return Ok(None);
        }
        if polled.revents & libc::POLLIN == 0 {
            return Err(());
        }
        // SAFETY: numbers, for which zeros are valid; the kernel wants them.
        let mut asked: libc::seccomp_notif = unsafe { zeroed() };
        // SAFETY: a live place of that type.
        let result = unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked)
        };
        // Otherwise its process was killed.
        Ok((result == 0).then(|| Asked {
            id: asked.id,
            thread: asked.pid as i32,
            number: asked.data.nr.into(),
            args: asked.data.args,
        }))
    }

    /// Answers: the call happens, or it fails with that error.
    pub(crate) fn answer(&self, asked: &Asked, error: Option<i32>) {
        let response = libc::seccomp_notif_resp {
            id: asked.id,
            val: 0,
            error: -error.unwrap_or(0),
            flags: if error.is_none() { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 } else { 0 },
        };
        // SAFETY: a live value of that type. Its failure is ignored: the process was killed.
        unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response)
        };
    }
}

/// Reads a string of another process that waits for an answer.
pub(crate) fn string_of(thread: i32, address: u64) -> Option<String> {
    let mut bytes = [0_u8; 256];
    // Not across the end of a page, behind which there may be nothing.
    let room = 4096 - (address as usize % 4096);
    let mut read = 0;
    for length in [room.min(bytes.len()), bytes.len()] {
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: length };
        let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: length };
        // SAFETY: the local memory has that length; the kernel checks the other.
        let count =
            unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
        read = read.max(usize::try_from(count).unwrap_or(0));
        if bytes[..read].contains(&0) {
            break;
        }
    }
    let end = bytes[..read].iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// Makes this process the parent of all orphans among its descendants.
pub(crate) fn adopt_orphans() {
    // SAFETY: takes numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Reaps a child that has ended: its pid and its raw status. `Err`: there is no child.
pub(crate) fn reap() -> Result<Option<(i32, i32)>, ()> {
    let mut status = 0;
    // SAFETY: a live place for the status.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) } {
        0 => Ok(None),
        -1 => Err(()),
        pid => Ok(Some((pid, status))),
    }
}

/// Kills a process.
pub(crate) fn kill(pid: i32) {
    // SAFETY: takes numbers. Its failure is ignored: it has ended.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Tells the other process where this one is: a call that does nothing, with that number.
pub(crate) fn mark(number: i32) {
    // SAFETY: no descriptor has a negative number.
    unsafe { libc::syscall(libc::SYS_close, c_long::from(-number)) };
}

/// Puts these files in place of the standard streams, in a session of its own.
/// Temporary files are in that folder.
pub(crate) fn own_session(stdin: &OwnedFd, output: &OwnedFd, folder: &std::path::Path) {
    // SAFETY: takes numbers; the descriptors are open, and nobody owns the standard ones. This process has one thread.
    unsafe {
        std::env::set_var("TMPDIR", folder);
        libc::setsid();
        libc::dup2(stdin.as_raw_fd(), 0);
        libc::dup2(output.as_raw_fd(), 1);
        libc::dup2(output.as_raw_fd(), 2);
    }
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: a live place for two numbers.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both were opened above, for nobody else.
    Ok(ends.map(|end| unsafe { File::from_raw_fd(end) }).into())
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

const _: () = assert!(size_of::<libc::seccomp_notif>() == 80);
