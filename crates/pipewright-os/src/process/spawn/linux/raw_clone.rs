//! clone(2) as assembly.
//!
//! The C library's function is avoided if possible. musl's (1.2.4 and later) returns `EINVAL` for
//! `CLONE_CHILD_CLEARTID`, which shows when a child has left its stack. Both C libraries store the error in
//! `errno`, which a process that runs in this process's memory shares with a thread.

use std::io;

use super::clone::CloneRequest;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
#[path = "../../../../supervisor/clone.rs"]
mod assembly;

/// Calls clone3(2). The process begins at `after_clone3`, on the given stack, which is also in the arguments.
///
/// # Safety
/// As for [`clone`].
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn clone3(
    request: &CloneRequest<'_>,
    arguments: &libc::clone_args,
) -> io::Result<i32> {
    let new = new_process(request, request.after_clone3);
    let arguments = [&raw const *arguments as usize, size_of::<libc::clone_args>(), 0, 0, 0];
    // SAFETY: as this function's. The kernel makes the stack's top from its start and its size.
    number_or_error(unsafe { assembly::create(libc::SYS_clone3 as isize, arguments, &new) })
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
fn new_process(request: &CloneRequest<'_>, entry: super::clone::EntryFn) -> assembly::NewProcess {
    assembly::NewProcess {
        stack_top: request.stack.top(),
        entry,
        argument: request.argument,
        pidfd: request.pidfd.unwrap_or(std::ptr::null_mut()),
        child_tid: request.stack.mark(),
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
fn number_or_error(result: isize) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(result as i32) }
}

/// Creates a process on the given stack that begins at `after_clone`.
///
/// # Safety
/// As for [`vfork`](super::clone::vfork) and [`clone_without_waiting`](super::clone::clone_without_waiting).
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(super) unsafe fn clone(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let new = new_process(request, request.after_clone);
    // SAFETY: as this function's. The stack's mark is its lowest word.
    number_or_error(unsafe { assembly::clone(flags as u64, &new) })
}

/// Creates a process with the C library's clone, on other processors. Nothing is supervised there, so no
/// stack is marked.
///
/// # Safety
/// As for the function above.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) unsafe fn clone(request: &CloneRequest<'_>, flags: libc::c_int) -> io::Result<i32> {
    let pidfd: *mut std::os::fd::RawFd = request.pidfd.unwrap_or(std::ptr::null_mut());
    // SAFETY: the child runs the entry on a stack of its own, with an argument that the parent keeps where
    // it is. The kernel writes the pidfd where the parent's tid would go (clone(2)).
    let pid = unsafe {
        libc::clone(
            request.after_clone,
            request.stack.top().cast(),
            flags,
            request.argument,
            pidfd,
            std::ptr::null_mut::<libc::c_void>(),
            request.stack.mark(),
        )
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}
