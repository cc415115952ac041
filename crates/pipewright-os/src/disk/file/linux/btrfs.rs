//! The metadata space of Btrfs: `BTRFS_IOC_FS_INFO`, `/sys/fs/btrfs/UUID/allocation`.

use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _};

/// The fields of `struct btrfs_ioctl_fs_info_args` that are read.
#[repr(C)]
struct FsInfo {
    max_id: u64,
    num_devices: u64,
    fsid: [u8; 16],
    nodesize: u32,
    others: [u8; 1024 - 36],
}

/// `_IOR(0x94, 31, struct btrfs_ioctl_fs_info_args)`.
const BTRFS_IOC_FS_INFO: libc::Ioctl = 0x8400_941f_u32 as libc::Ioctl;

/// The nodes that each write in place reserves until it is done: two for each level that a tree may have
/// (`btrfs_calc_insert_metadata_size`). A write that must not wait is refused if there is no space for them.
const NODES: u64 = 2 * 8;

pub(in crate::disk::file) fn write_room(file: &fs::File) -> Option<usize> {
    let (uuid, nodesize) = info(file)?;
    let counter = |name: &str| -> Option<u64> {
        let of = |kind| format!("/sys/fs/btrfs/{uuid}/allocation/{kind}/{name}");
        // Small filesystems use one kind of space for data and metadata.
        let text = fs::read_to_string(of("metadata")).or_else(|_| fs::read_to_string(of("mixed")));
        text.ok()?.trim().parse().ok()
    };
    let taken = ["bytes_used", "bytes_reserved", "bytes_pinned", "bytes_may_use", "bytes_readonly"];
    let taken = taken.into_iter().map(counter).sum::<Option<u64>>()?;
    let room = counter("total_bytes")?.saturating_sub(taken);
    usize::try_from(room.checked_div(nodesize * NODES)?).ok()
}

/// Returns the filesystem's name in sysfs and the size of its nodes in bytes. `None` if it is not Btrfs.
fn info(file: &fs::File) -> Option<(String, u64)> {
    let mut info =
        FsInfo { max_id: 0, num_devices: 0, fsid: [0; 16], nodesize: 0, others: [0; 1024 - 36] };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: an open file and a live struct with the layout and size of the call.
    let result = unsafe { libc::ioctl(fd, BTRFS_IOC_FS_INFO, &raw mut info) };
    if result != 0 {
        return None;
    }
    let mut uuid = String::with_capacity(36);
    for (place, byte) in info.fsid.iter().enumerate() {
        let dash = if [4, 6, 8, 10].contains(&place) { "-" } else { "" };
        write!(uuid, "{dash}{byte:02x}").ok()?;
    }
    Some((uuid, u64::from(info.nodesize)))
}
