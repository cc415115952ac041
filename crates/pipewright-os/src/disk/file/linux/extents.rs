//! The extents of a file on its disk: `FS_IOC_FIEMAP` (Documentation/filesystems/fiemap.rst).

use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};

/// The head of `struct fiemap`, without its array of extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;

pub(in crate::disk::file) fn extents(file: &fs::File, offset: u64, bytes: u64) -> Option<usize> {
    // Without an array, the extents are only counted.
    let mut requested = Fiemap {
        start: offset,
        length: bytes,
        flags: 0,
        mapped_extents: 0,
        extent_count: 0,
        reserved: 0,
    };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: an open file and a live struct with the layout of the call, without an array for the kernel to
    // fill.
    let result = unsafe { libc::ioctl(fd, FS_IOC_FIEMAP, &raw mut requested) };
    (result == 0).then_some(requested.mapped_extents as usize)
}
