//! The child's handles: stdio and the list, and no others.

use std::os::fd::RawFd;

use super::{FailedStep, Move, check};
use crate::process::spawn::Step;

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
    if !crate::base::fallback::NO_CLOSE_RANGE {
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

/// Marks the handles that `/proc/self/fd` lists, without close_range. Not every number up to the limit,
/// because there can be a billion.
fn close_others_one_by_one() -> Result<(), FailedStep> {
    // Raw calls: the C library's open and close are cancellation points.
    // SAFETY: a C string and flags.
    let dir = unsafe {
        libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/proc/self/fd".as_ptr(),
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
        )
    };
    check(dir as i32, Step::CloseOthers)?;
    let mut buffer = DirBuffer([0; 1024]);
    loop {
        // SAFETY: the kernel writes at most the length given.
        let length = unsafe {
            libc::syscall(libc::SYS_getdents64, dir, buffer.0.as_mut_ptr(), buffer.0.len())
        };
        match usize::try_from(length) {
            Err(_) => return Err(FailedStep(Step::CloseOthers)),
            Ok(0) => break,
            Ok(length) => mark_listed(buffer.0.get(..length).unwrap_or(&[])),
        }
    }
    // SAFETY: opened above.
    unsafe { libc::syscall(libc::SYS_close, dir) };
    Ok(())
}

/// A buffer with the alignment of the kernel's directory entries.
#[repr(align(8))]
struct DirBuffer([u8; 1024]);

/// Marks the handles in a list of struct linux_dirent64: inode 8, offset 8, length 2, type 1, then the name
/// (getdents(2)).
fn mark_listed(mut entries: &[u8]) {
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    while let Some(&[low, high]) = entries.get(LENGTH_AT..LENGTH_AT + 2) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        if let Some(fd) = number(entries.get(NAME_AT..length).unwrap_or(&[])) {
            if fd > libc::STDERR_FILENO {
                // Ignored: the only error is that it is not open.
                // SAFETY: numbers.
                unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
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
    use super::*;

    #[test]
    fn only_whole_numbers_are_descriptors() {
        assert_eq!(number(b"17\0junk"), Some(17));
        for name in [&b".\0"[..], b"..\0", b"\0", b"1a\0", b"99999999999\0"] {
            assert_eq!(number(name), None);
        }
    }
}
