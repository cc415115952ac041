//! Filters that refuse or hold a system call of this process, and the kernel's own record of io_uring.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::mounts::{Mounted, mount};
use crate::skip::{Lack, Need};

/// Makes these calls fail with that error, in this process and in its later children.
pub fn refuse(calls: &[libc::c_long], errno: i32) {
    let mut program = vec![LOAD_NUMBER];
    for call in calls {
        program.push(skip_unless_equal(*call as u32, 1));
        program.push(fail_with(errno));
    }
    install(program);
}

/// Makes a call fail with `EINVAL` if the argument of that index is not zero, as a kernel does that knows no flag.
pub fn refuse_flags(call: libc::c_long, argument: u32) {
    // The low half of an argument comes first on a little-endian processor; all that run this are.
    let low_half = 16 + 8 * argument;
    install(vec![
        LOAD_NUMBER,
        skip_unless_equal(call as u32, 3),
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, low_half, 0),
        // If it is zero, skip the failure.
        libc::sock_filter { jt: 1, ..skip_unless_equal(0, 0) },
        fail_with(libc::EINVAL),
    ]);
}

/// Loads the number of the call, which is the first word of seccomp_data (seccomp(2)).
const LOAD_NUMBER: libc::sock_filter =
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);

const fn instruction(code: u32, k: u32, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf, k }
}

const fn skip_unless_equal(value: u32, skipped: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, skipped)
}

const fn fail_with(errno: i32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32, 0)
}

/// Filters the calls of this process. The filter allows what its program does not refuse.
fn install(mut program: Vec<libc::sock_filter>) {
    program.push(instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers; this process runs only its one test.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: a live program of that length, for every thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const filter,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// The calls that wait.
#[derive(Debug)]
pub struct Held(OwnedFd);

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND` (seccomp_unotify(2)).
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// Makes that call wait in this thread, in the threads that it starts, and in their children. Returns `None` if this
/// machine has no such filters.
#[must_use]
pub fn hold(call: libc::c_long) -> Option<Held> {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const SKIP_UNLESS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
    let mut program = [
        step(LOAD_NUMBER, 0, 0),
        step(SKIP_UNLESS_EQUAL, call as u32, 1),
        step(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: a live program of that length.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        )
    };
    // SAFETY: the call made it, and nothing else owns it.
    (listener >= 0).then(|| Held(unsafe { OwnedFd::from_raw_fd(listener as i32) }))
}

impl Held {
    /// Waits until such a call waits. Returns the number for [`continue_call`](Self::continue_call).
    #[must_use]
    pub fn wait_for_one(&self) -> u64 {
        loop {
            // SAFETY: the call requires a struct of zeros.
            let mut seen: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: a live struct of the size that the request names.
            let result = unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE as _, &raw mut seen) };
            let error = io::Error::last_os_error();
            match (result, error.kind()) {
                (0, _) => return seen.id,
                // This process was stopped and continued, or its control group was frozen for a moment.
                (_, io::ErrorKind::Interrupted) => {}
                _ => panic!("{error}"),
            }
        }
    }

    /// Lets the call continue.
    pub fn continue_call(&self, id: u64) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        self.answer(libc::seccomp_notif_resp { id, val: 0, error: 0, flags });
    }

    /// Makes the call fail with that error.
    pub fn fail_call(&self, id: u64, errno: i32) {
        self.answer(libc::seccomp_notif_resp { id, val: 0, error: -errno, flags: 0 });
    }

    fn answer(&self, mut answer: libc::seccomp_notif_resp) {
        // SAFETY: as above.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), SEND as _, &raw mut answer) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}

/// A private trace instance, until it is dropped.
#[derive(Debug)]
pub struct Oracle {
    instance: PathBuf,
    _tracefs: Mounted,
}

const EVENT: &str = "events/io_uring/io_uring_queue_async_work/enable";

impl Oracle {
    /// Starts the trace. Call [`private`](crate::mounts::private) first. `Err` is what the machine lacks.
    pub fn new(folder: &Path) -> Result<Oracle, Lack> {
        const NEED: Need<'static> = Need::Filesystem("tracefs");
        let tracefs = mount(folder, "trace", &["-t", "tracefs", "none"]);
        let tracefs = tracefs.map_err(|lack| lack.of(NEED))?;
        let name = format!("pipewright-test-{}", std::process::id());
        let instance = tracefs.path().join("instances").join(name);
        let message = |error: std::io::Error| Lack::new(NEED, error);
        fs::create_dir(&instance).map_err(message)?;
        let oracle = Oracle { instance, _tracefs: tracefs };
        oracle.write("buffer_size_kb", "2048").map_err(message)?;
        oracle.write(EVENT, "1").map_err(message)?;
        Ok(oracle)
    }

    fn write(&self, file: &str, text: &str) -> std::io::Result<()> {
        fs::write(self.instance.join(file), text)
    }

    /// Returns the `user_data` of each operation of this thread that the kernel has handed to one of its
    /// threads since the last call, in order.
    pub fn handed_over(&self) -> Vec<u64> {
        let trace = fs::read(self.instance.join("trace")).expect("the trace can be read");
        self.write("trace", "").expect("the trace can be emptied");
        let trace = String::from_utf8_lossy(&trace);
        let own = format!("-{} ", rustix::thread::gettid().as_raw_nonzero());
        // "name-TID  [cpu] flags time: io_uring_queue_async_work: ring ..., user_data 0x1f, opcode ..."
        let mine = trace
            .lines()
            .filter(|line| line.split_once('[').is_some_and(|(task, _)| task.contains(&own)));
        mine.filter_map(|line| {
            let data = line.split_once("user_data 0x")?.1.split(',').next()?;
            u64::from_str_radix(data, 16).ok()
        })
        .collect()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // Removed before the unmount: instances belong to the machine, not to the mount.
        let _ = self.write(EVENT, "0");
        let _ = fs::remove_dir(&self.instance);
    }
}
