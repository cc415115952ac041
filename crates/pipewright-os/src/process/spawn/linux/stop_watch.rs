//! A child that another user stops between its change of user and its exec.
//!
//! From that change on, the new user may send the child signals, and SIGSTOP cannot be blocked. Its parent would sleep until the
//! exec for as long as that user likes, deaf to every timeout. So the start of a child that changes its user waits in slices, and
//! looks at the child between two of them.

use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::process::nolibc::call::call;
use crate::process::nolibc::number;

/// The time between two looks: most starts are over before the first.
pub(super) const PAUSE_NANOS: i64 = 5_000_000;
/// The number of looks that find the child stopped, before it is killed: a tenth of a second.
const MOST_STOPS: u32 = 20;

/// A child of this process that has not executed its program yet.
pub(super) struct StopWatch {
    pid: i32,
    pidfd: Option<RawFd>,
    stops: u32,
}

impl StopWatch {
    pub(super) fn new(pid: i32, pidfd: Option<RawFd>) -> StopWatch {
        StopWatch { pid, pidfd, stops: 0 }
    }

    /// Waits until the child has executed its program or has ended: the kernel clears that word then, and wakes this process
    /// (`CLONE_CHILD_CLEARTID`).
    pub(super) fn wait_until_zero(mut self, word: &AtomicI32) {
        const FUTEX_WAIT: usize = 0;
        let pause = [0, PAUSE_NANOS];
        loop {
            let value = word.load(Ordering::Acquire);
            if value == 0 {
                return;
            }
            let (place, time) = (ptr::from_ref(word) as usize, pause.as_ptr() as usize);
            let wait = [place, FUTEX_WAIT, value as usize, time, 0, 0];
            let woken = call(libc::SYS_futex as usize, wait);
            // Some kernels do not clear the word of a child that dumps core.
            if woken == -(libc::ETIMEDOUT as isize) && self.has_ended() {
                return;
            }
        }
    }

    /// Looks at the child. If it is stopped, continues it; if it is so again and again, kills it. Returns true if it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        const P_PID: usize = 1;
        const P_PIDFD: usize = 3;
        const OPTIONS: libc::c_int =
            libc::WNOHANG | libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
        let mut info = [0_i32; 32];
        let place = info.as_mut_ptr() as usize;
        let look = |kind, number| {
            call(number::WAITID, [kind, number as usize, place, OPTIONS as usize, 0, 0])
        };
        let looked = match self.pidfd {
            Some(pidfd) => look(P_PIDFD, pidfd),
            None => look(P_PID, self.pid),
        };
        // After its number and an error number.
        let [_, _, code, ..] = info;
        match (looked, code) {
            (0, libc::CLD_STOPPED) => {
                self.stops += 1;
                self.signal(if self.stops > MOST_STOPS { libc::SIGKILL } else { libc::SIGCONT });
                false
            }
            (0, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) => true,
            // Other code of this process has reaped it.
            _ => looked == -(libc::ECHILD as isize),
        }
    }

    fn signal(&self, signal: libc::c_int) {
        // Ignored: it has ended, or this process has given up the right to.
        let _ = match self.pidfd {
            Some(pidfd) => {
                let arguments = [pidfd as usize, signal as usize, 0, 0, 0, 0];
                call(libc::SYS_pidfd_send_signal as usize, arguments)
            }
            None => call(number::KILL, [self.pid as usize, signal as usize, 0, 0, 0, 0]),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_that_is_stopped_goes_on_and_one_that_stays_so_is_killed() {
        // It stops itself before and after each look.
        let mut child = Command::new("sh");
        child.args(["-c", "kill -STOP $$; exec sh -c 'while :; do kill -STOP $$; done'"]);
        let mut child = child.spawn().unwrap();
        let word = AtomicI32::new(1);
        StopWatch::new(child.id() as i32, None).wait_until_zero(&word);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        let mut child = Command::new("sh").args(["-c", "kill -STOP $$; exit 7"]).spawn().unwrap();
        StopWatch::new(child.id() as i32, None).wait_until_zero(&word);
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }

    #[test]
    fn a_wait_ends_with_the_word() {
        // Its value for ever: only a child of this process is looked at.
        StopWatch::new(0, None).wait_until_zero(&AtomicI32::new(0));
    }
}
