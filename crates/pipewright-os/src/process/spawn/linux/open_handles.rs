//! The handles of this process: closing all but a few, and listing them if `close_range` cannot close them.

use std::os::fd::RawFd;

use super::raw_syscall::syscall;
use crate::base::test_hooks::{Forced, is_forced};

/// Closes the handles from a number on, except the listed ones.
///
/// Uses `close_range` without flags (Linux 5.9): `CLOSE_RANGE_CLOEXEC` came with 5.11. If the call is refused, closes
/// what `/proc/self/fd` lists.
///
/// # Errors
/// `close_range` is refused, and `/proc/self/fd` cannot be read. That needs a handle; if none is free, one is made so.
pub(super) fn close_from(
    from: RawFd,
    except: impl Iterator<Item = RawFd> + Clone,
) -> Result<(), i32> {
    if !is_forced(Forced::NoCloseRange) && close_ranges(from, except.clone()).is_ok() {
        return Ok(());
    }
    let is_kept = |fd: RawFd| fd < from || except.clone().any(|kept| kept == fd);
    let mut next = from;
    loop {
        let closed = each_open(|fd| {
            if !is_kept(fd) {
                // Ignored: Linux closes the handle even if it reports an error (close(2)).
                let _ = syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
            }
        });
        if closed != Err(libc::EMFILE) {
            return closed;
        }
        // All numbers below the limit are open, so the first one that is not kept is.
        while is_kept(next) {
            next += 1;
        }
        if syscall(libc::SYS_close, [next as usize, 0, 0, 0, 0, 0]) == Err(libc::EBADF) {
            return closed;
        }
        next += 1;
    }
}

/// Closes the ranges between the listed handles.
fn close_ranges(mut from: RawFd, except: impl Iterator<Item = RawFd> + Clone) -> Result<(), i32> {
    let close_range = |from: RawFd, to: RawFd| {
        syscall(libc::SYS_close_range, [from as usize, to as usize, 0, 0, 0, 0]).map(drop)
    };
    loop {
        let kept = except.clone().filter(|fd| *fd >= from);
        let Some(next) = kept.min() else { return close_range(from, RawFd::MAX) };
        if next > from {
            close_range(from, next - 1)?;
        }
        from = next + 1;
    }
}

/// Calls a function with each handle that `/proc/self/fd` lists. Not with every number up to the limit, because there
/// can be a billion. The function may close the handle.
///
/// # Errors
/// `/proc/self/fd` cannot be read.
pub(super) fn each_open(mut found: impl FnMut(RawFd)) -> Result<(), i32> {
    let path = c"/proc/self/fd".as_ptr() as usize;
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
    let list = syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path, flags, 0, 0, 0])?;
    let mut buffer = DirBuffer([0; 1024]);
    let result = loop {
        let arguments = [list, buffer.0.as_mut_ptr() as usize, buffer.0.len(), 0, 0, 0];
        match syscall(libc::SYS_getdents64, arguments) {
            Ok(0) => break Ok(()),
            Ok(length) => each_entry(buffer.0.get(..length).unwrap_or(&[]), |fd| {
                if fd as usize != list {
                    found(fd);
                }
            }),
            Err(errno) => break Err(errno),
        }
    };
    // Ignored: as above.
    let _ = syscall(libc::SYS_close, [list, 0, 0, 0, 0, 0]);
    result
}

/// A buffer with the alignment of the kernel's directory entries.
#[repr(align(8))]
struct DirBuffer([u8; 1024]);

/// Finds the handles in a list of struct linux_dirent64: inode 8, offset 8, length 2, type 1, then the name
/// (getdents(2)).
fn each_entry(mut entries: &[u8], mut found: impl FnMut(RawFd)) {
    const LENGTH_AT: usize = 16;
    const NAME_AT: usize = 19;
    while let Some(&[low, high]) = entries.get(LENGTH_AT..LENGTH_AT + 2) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        if let Some(fd) = number(entries.get(NAME_AT..length).unwrap_or(&[])) {
            found(fd);
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
