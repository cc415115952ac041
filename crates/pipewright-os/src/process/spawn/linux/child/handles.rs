//! The child's handles: stdio and the list, and no others.

use std::os::fd::RawFd;

use super::{FailedStep, Move, check, errno};
use crate::base::test_hooks::{Forced, is_forced};
use crate::process::spawn::Step;
use crate::process::spawn::linux::open_handles;

/// Copies the handles up to a number from those that the child shares with its parent. Returns false if the system
/// refuses; then they are still shared.
///
/// A child that is created with a copy of all handles takes longer the more its parent has: 0.2 ms for each thousand.
pub(super) fn unshare(highest: RawFd) -> bool {
    if !is_forced(Forced::NoCloseRange) {
        let above = highest as libc::c_uint + 1;
        // SAFETY: numbers. The flag is as old as the call, Linux 5.9. Nothing is closed in the parent.
        let result = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                above,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_UNSHARE,
            )
        };
        if result == 0 {
            return true;
        }
    }
    // SAFETY: a number. A raw call, as all here.
    unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_FILES) == 0 }
}

/// Moves sources away from the numbers that will be assigned: 0 to 2, and each other's targets.
pub(super) fn move_sources_away(moves: &[Move]) -> Result<(), FailedStep> {
    for (index, place) in moves.iter().enumerate() {
        let from = place.from;
        place.moved.set(from);
        let is_target = |fd: RawFd| moves.iter().any(|other| other.to == fd);
        if from > libc::STDERR_FILENO && (from == place.to || !is_target(from)) {
            continue;
        }
        // Take the lowest free number that is not a target. The copies in between stay open until exec, so
        // that no number is offered twice.
        let mut copy = from;
        loop {
            copy = duplicate_from(copy, 3, Step::Inherit(index))?;
            if !is_target(copy) {
                break;
            }
        }
        place.moved.set(copy);
    }
    Ok(())
}

pub(super) fn place_stdio(stdio: [Option<RawFd>; 3]) -> Result<(), FailedStep> {
    let mut sources = stdio;
    for (target, source) in sources.iter_mut().enumerate() {
        // A parent with closed standard handles gets pipes numbered 0 to 2, and dup2 in order would
        // overwrite one before it is used (oven-sh/bun#41751).
        match source {
            Some(fd) if *fd <= libc::STDERR_FILENO && *fd != target as RawFd => {
                *fd = duplicate_from(*fd, 3, Step::Stdio(target as u8))?;
            }
            _ => {}
        }
    }
    for (target, source) in sources.into_iter().enumerate() {
        if let Some(fd) = source {
            place_one(fd, target as RawFd, Step::Stdio(target as u8))?;
        }
    }
    Ok(())
}

pub(super) fn place(moves: &[Move]) -> Result<(), FailedStep> {
    for (index, place) in moves.iter().enumerate() {
        place_one(place.moved.get(), place.to, Step::Inherit(index))?;
    }
    Ok(())
}

/// Makes `to` a copy of `from` that survives exec.
fn place_one(from: RawFd, to: RawFd, step: Step) -> Result<(), FailedStep> {
    if from == to {
        // dup2 of a descriptor onto itself would leave it close-on-exec.
        // SAFETY: numbers.
        return check(unsafe { libc::fcntl(from, libc::F_SETFD, 0) }, step);
    }
    // SAFETY: numbers; the earlier file under `to` is this process's own copy.
    check(unsafe { libc::dup2(from, to) }, step)
}

fn duplicate_from(fd: RawFd, lowest: RawFd, step: Step) -> Result<RawFd, FailedStep> {
    // SAFETY: numbers.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest) };
    check(copy, step)?;
    Ok(copy)
}

/// Marks all handles from 3 on close-on-exec.
pub(super) fn close_others() -> Result<(), FailedStep> {
    if !is_forced(Forced::NoCloseRange) {
        // SAFETY: numbers. The flag exists since Linux 5.11.
        let result = unsafe {
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
        };
        if result == 0 {
            return Ok(());
        }
    }
    close_others_one_by_one()
}

/// Marks the handles that `/proc/self/fd` lists, without close_range.
fn close_others_one_by_one() -> Result<(), FailedStep> {
    open_handles::each_open(syscall, |fd| {
        if fd > libc::STDERR_FILENO {
            // Ignored: the only error is that it is not open.
            // SAFETY: numbers.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    })
    .map_err(|_| FailedStep(Step::CloseOthers))
}

/// Makes a system call by its number: the C library's open and close are cancellation points.
fn syscall(number: libc::c_long, [a, b, c, d, e, f]: [usize; 6]) -> Result<usize, i32> {
    // SAFETY: `open_handles` passes C strings and buffers that live through the call.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    usize::try_from(result).map_err(|_| errno())
}
