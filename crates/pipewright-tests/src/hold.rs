//! Holds a system call of this process and its children until the test lets go, by a real filter.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

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
        // SAFETY: the call requires a struct of zeros.
        let mut seen: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: a live struct of the size that the request names.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE as _, &raw mut seen) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        seen.id
    }

    /// Lets the call continue.
    pub fn continue_call(&self, id: u64) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
        // SAFETY: as above.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), SEND as _, &raw mut answer) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}
