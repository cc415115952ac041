//! The child's rights: its group, limits, root directory, user, and death with its parent.

use std::ffi::c_char;
use std::os::fd::RawFd;
use std::ptr;

use super::{FailedStep, check, errno, set_errno};
use crate::process::spawn::{Credentials, Group, Resource, ResourceLimit, Step, UnsetGroups};

pub(super) fn join_group(group: Group) -> Result<(), FailedStep> {
    let result = match group {
        Group::Same => 0,
        // SAFETY: numbers; 0 is this process.
        Group::Own => unsafe { libc::setpgid(0, 0) },
        // SAFETY: as above.
        Group::Join(group) => unsafe { libc::setpgid(0, group as libc::pid_t) },
        // SAFETY: no argument.
        Group::Session => unsafe { libc::setsid() },
    };
    check(result, Step::Group)
}

/// Moves this process into the cgroup whose `cgroup.procs` file is given.
pub(super) fn join_cgroup(procs: RawFd, step: Step) -> Result<(), FailedStep> {
    // 0 means the writing process itself (cgroups(7)).
    check(write(procs, b"0"), step)
}

/// Writes with a raw system call: the C library's write is a cancellation point, and in the child would end
/// the thread of the parent whose storage the child shares.
pub(super) fn write(fd: RawFd, bytes: &[u8]) -> libc::c_int {
    // SAFETY: live bytes and their number.
    unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) as libc::c_int }
}

/// Makes the group that this process leads the foreground group of the terminal. SIGTTOU, which would stop
/// a background job, is blocked until exec.
pub(super) fn become_foreground(terminal: RawFd) {
    // SAFETY: no argument.
    let group = unsafe { libc::getpid() };
    // Ignored: the terminal has hung up, and the child will notice that.
    // SAFETY: an open file and a live number.
    unsafe { libc::ioctl(terminal, libc::TIOCSPGRP, &raw const group) };
}

/// Makes the terminal the controlling one of the session that this process leads, and its group the foreground group.
pub(super) fn take_terminal(terminal: RawFd) -> Result<(), FailedStep> {
    // SAFETY: numbers; 0 does not take the terminal from another session.
    check(unsafe { libc::ioctl(terminal, libc::TIOCSCTTY, 0) }, Step::Terminal)
}

pub(super) fn set_limits(limits: &[ResourceLimit]) -> Result<(), FailedStep> {
    for (index, limit) in limits.iter().enumerate() {
        let value = libc::rlimit64 {
            rlim_cur: limit.soft.unwrap_or(libc::RLIM64_INFINITY),
            rlim_max: limit.hard.unwrap_or(libc::RLIM64_INFINITY),
        };
        // SAFETY: this process, a live value, and null for the old one.
        let result = unsafe {
            libc::syscall(
                libc::SYS_prlimit64,
                0,
                resource(limit.resource),
                &raw const value,
                ptr::null::<libc::rlimit64>(),
            )
        };
        check(result as i32, Step::Limit(index))?;
    }
    Ok(())
}

/// Returns the number of a resource.
pub(in crate::process::spawn::linux) fn resource(resource: Resource) -> libc::c_uint {
    // They are c_uint in glibc, c_int in musl.
    let number = match resource {
        Resource::AddressSpace => libc::RLIMIT_AS,
        Resource::CoreDump => libc::RLIMIT_CORE,
        Resource::CpuTime => libc::RLIMIT_CPU,
        Resource::Data => libc::RLIMIT_DATA,
        Resource::FileSize => libc::RLIMIT_FSIZE,
        Resource::LockedMemory => libc::RLIMIT_MEMLOCK,
        Resource::OpenFiles => libc::RLIMIT_NOFILE,
        Resource::Processes => libc::RLIMIT_NPROC,
        Resource::Stack => libc::RLIMIT_STACK,
    };
    number as libc::c_uint
}

pub(super) fn add_nice(add: i32) -> Result<(), FailedStep> {
    // The raw call returns 20 minus the niceness, so that no result looks like an error (getpriority(2)).
    // SAFETY: numbers; 0 is this process.
    let raw = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) };
    let nice = (20 - raw as i32).saturating_add(add).clamp(-20, 19);
    // SAFETY: as above.
    let result = unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, nice) };
    check(result as i32, Step::Nice)
}

/// Changes the root directory.
///
/// # Safety
/// `root` is null or a C string.
pub(super) unsafe fn change_root(root: *const c_char) -> Result<(), FailedStep> {
    if root.is_null() {
        return Ok(());
    }
    // SAFETY: as this function's.
    check(unsafe { libc::chroot(root) }, Step::Chroot)?;
    // A working directory outside the new root is a way out of it (chroot(2)), and a relative one that
    // follows is meant to be inside.
    // SAFETY: a C string.
    check(unsafe { libc::chdir(c"/".as_ptr()) }, Step::Chroot)
}

/// The threads whose user and groups change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CredentialScope {
    /// The single thread of a child. The C library's calls would change every thread of the parent.
    Child,
    /// All threads of this process, which continues if the exec fails (nptl(7)).
    Process,
}

pub(super) fn change_identity(
    identity: &Credentials,
    unset: UnsetGroups,
    scope: CredentialScope,
) -> Result<(), FailedStep> {
    if let Some(groups) = &identity.groups {
        set_groups(groups, scope)?;
    } else if unset != UnsetGroups::Kept {
        let dropped = set_groups(&[], scope);
        if unset == UnsetGroups::Dropped || errno() != libc::EPERM {
            dropped?;
        }
    }
    if let Some(group) = identity.group {
        let result = match scope {
            // SAFETY: numbers.
            CredentialScope::Child => unsafe {
                libc::syscall(libc::SYS_setgid, group) as libc::c_int
            },
            // SAFETY: as above.
            CredentialScope::Process => unsafe { libc::setgid(group) },
        };
        check(result, Step::Identity)?;
    }
    if let Some(user) = identity.user {
        let result = match scope {
            // SAFETY: numbers.
            CredentialScope::Child => unsafe {
                libc::syscall(libc::SYS_setuid, user) as libc::c_int
            },
            // SAFETY: as above.
            CredentialScope::Process => unsafe { libc::setuid(user) },
        };
        check(result, Step::Identity)?;
    }
    Ok(())
}

fn set_groups(groups: &[u32], scope: CredentialScope) -> Result<(), FailedStep> {
    let (count, first) = (groups.len(), groups.as_ptr());
    let result = match scope {
        // SAFETY: an array of that length.
        CredentialScope::Child => unsafe {
            libc::syscall(libc::SYS_setgroups, count, first) as libc::c_int
        },
        // SAFETY: as above.
        CredentialScope::Process => unsafe { libc::setgroups(count, first) },
    };
    check(result, Step::Identity)
}

/// Makes the child die with its parent. Runs after the change of user, which would clear the setting
/// (prctl(2), PR_SET_PDEATHSIG).
pub(super) fn die_with_parent(parent: i32) -> Result<(), FailedStep> {
    // SAFETY: numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    check(result, Step::ParentDeath)?;
    // The parent may have ended before the setting; then the signal would never be sent.
    // SAFETY: no argument. 0: the parent is in another pid namespace and invisible from here.
    let now = unsafe { libc::getppid() };
    if now != parent && now != 0 {
        set_errno(libc::ESRCH);
        return Err(FailedStep(Step::ParentDeath));
    }
    Ok(())
}
