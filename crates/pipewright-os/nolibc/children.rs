//! The children of this process, as the kernel lists them: for the supervisor, and for a process that could not become
//! one.

use core::mem::MaybeUninit;
use core::slice;

use super::call;
use super::number;

const SIGKILL: usize = 9;
const P_PID: usize = 1;

/// Kills every child. Only this process can reap them, so each number still belongs to that child. `list` is the open
/// `/proc/thread-self/children`.
pub(crate) fn kill_children(list: i32) {
    call(number::LSEEK, [list as usize, 0, 0, 0, 0, 0]);
    let mut buffer = MaybeUninit::<[u8; 4096]>::uninit();
    let place = buffer.as_mut_ptr() as usize;
    let mut pid = 0;
    loop {
        let count = call(number::READ, [list as usize, place, 4096, 0, 0, 0]);
        if count <= 0 {
            return;
        }
        // SAFETY: the kernel has just written that many bytes to the buffer.
        let text = unsafe { slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), count as usize) };
        // The file has numbers, each followed by a space. Two reads may split one.
        for byte in text {
            if byte.is_ascii_digit() {
                pid = pid * 10 + i32::from(byte - b'0');
            } else if pid > 0 {
                // The numbers belong to the pid namespace that `/proc` shows, which may be another one.
                if check_child(P_PID, pid) == 0 {
                    call(number::KILL, [pid as usize, SIGKILL, 0, 0, 0, 0]);
                }
                pid = 0;
            }
        }
    }
}

/// Kills and reaps all children, and what they leave to this process, which is a subreaper, until none is left. `list`
/// is as for [`kill_children`]; without one, children are only waited for.
pub(crate) fn end_children(list: i32) {
    const WALL: usize = 0x4000_0000;
    const EINTR: isize = 4;
    loop {
        // Any further child is left by one that ends later, so the list is read again after each end.
        kill_children(list);
        let ended = call(number::WAIT4, [usize::MAX, 0, WALL, 0, 0, 0]);
        if ended < 0 && ended != -EINTR {
            return;
        }
    }
}

/// Returns 0 if the process is a child of this one, ended or not. Does not reap it.
pub(crate) fn check_child(kind: usize, pid: i32) -> isize {
    const WNOHANG_WEXITED_WNOWAIT_WALL: usize = 0x1 | 0x4 | 0x0100_0000 | 0x4000_0000;
    call(number::WAITID, [kind, pid as usize, 0, WNOHANG_WEXITED_WNOWAIT_WALL, 0, 0])
}
