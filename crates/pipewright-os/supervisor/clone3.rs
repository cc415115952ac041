//! clone3(2), which can create a process in a cgroup.

use crate::clone::{self, NewProcess};

/// The arguments of clone3(2).
#[repr(C, align(8))]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Creates a process as `clone` does, in a cgroup (`CLONE_INTO_CGROUP`, Linux 5.7).
///
/// # Safety
/// As for `clone`.
pub(super) unsafe fn clone_into_cgroup(
    flags: u64,
    exit_signal: u64,
    stack_bytes: usize,
    cgroup: i32,
    new: &NewProcess,
) -> isize {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let arguments = CloneArgs {
        flags: flags | CLONE_INTO_CGROUP,
        pidfd: new.pidfd as u64,
        child_tid: new.child_tid as u64,
        parent_tid: 0,
        exit_signal,
        stack: new.stack_top as u64 - stack_bytes as u64,
        stack_size: stack_bytes as u64,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: cgroup as u64,
    };
    /// The number on all processors.
    const CLONE3: isize = 435;
    let place = &raw const arguments as usize;
    // SAFETY: as the caller promises. The kernel makes the stack's top from its start and its size.
    unsafe { clone::create(CLONE3, [place, size_of::<CloneArgs>(), 0, 0, 0], new) }
}
