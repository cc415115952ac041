//! The properties of a file that decide how the system reads and writes it.

use std::time::Duration;

/// The alignment required for direct I/O, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// The alignment of a buffer's address.
    pub memory: usize,
    /// The alignment of the offset and the length.
    pub offset: usize,
    /// True if the system reported the alignment. Otherwise it is a value that suits every disk.
    pub reported: bool,
    /// True if direct I/O bypasses the cache; `Some(false)` if the system reports that it cannot.
    pub direct: Option<bool>,
}

impl Alignment {
    /// The alignment that suits every disk, and every filesystem with blocks of up to 4 KiB.
    pub const ASSUMED: Alignment =
        Alignment { memory: 4096, offset: 4096, reported: false, direct: None };
    /// No alignment required.
    pub const NONE: Alignment = Alignment { memory: 1, offset: 1, reported: true, direct: None };
}

/// The kind of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filesystem {
    /// ext2, ext3 or ext4, which share one number.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// F2FS.
    F2fs,
    /// Files in memory.
    Tmpfs,
    /// Layers over another filesystem: the root of most containers.
    Overlay,
    /// A filesystem in user space.
    Fuse,
    /// A network filesystem.
    Nfs,
    /// ZFS.
    Zfs,
    /// No filesystem: the disk itself.
    Device,
    /// Another filesystem, by its number.
    Other(u64),
}

impl Filesystem {
    /// Returns the filesystem for an `f_type` of `statfs`.
    #[must_use]
    pub fn of_number(number: u64) -> Filesystem {
        match number {
            0xef53 => Filesystem::Ext4,
            0x5846_5342 => Filesystem::Xfs,
            0x9123_683e => Filesystem::Btrfs,
            0xf2f5_2010 => Filesystem::F2fs,
            0x0102_1994 => Filesystem::Tmpfs,
            0x794c_7630 => Filesystem::Overlay,
            0x6573_5546 => Filesystem::Fuse,
            0x6969 => Filesystem::Nfs,
            0x2fc1_2fc1 => Filesystem::Zfs,
            other => Filesystem::Other(other),
        }
    }

    /// Returns the name that `mount` uses.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Filesystem::Ext4 => "ext4".to_owned(),
            Filesystem::Xfs => "xfs".to_owned(),
            Filesystem::Btrfs => "btrfs".to_owned(),
            Filesystem::F2fs => "f2fs".to_owned(),
            Filesystem::Tmpfs => "tmpfs".to_owned(),
            Filesystem::Overlay => "overlay".to_owned(),
            Filesystem::Fuse => "fuse".to_owned(),
            Filesystem::Nfs => "nfs".to_owned(),
            Filesystem::Zfs => "zfs".to_owned(),
            Filesystem::Device => "block device".to_owned(),
            Filesystem::Other(number) => format!("filesystem {number:#x}"),
        }
    }
}

/// The properties that decide how the system reads and writes a file. Unknown ones are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Facts {
    /// The length in bytes.
    pub length: u64,
    /// The filesystem.
    pub filesystem: Option<Filesystem>,
    /// True if the filesystem stores the file compressed.
    pub compressed: Option<bool>,
    /// True if the filesystem stores the file encrypted.
    pub encrypted: Option<bool>,
    /// True if the file is written in place, without copies and checksums (`chattr +C`).
    pub no_copy_on_write: Option<bool>,
    /// True if the filesystem supports requests that must not wait (`RWF_NOWAIT`).
    pub nowait: Option<bool>,
    /// True if the file can be polled. Ordinary files cannot; those in FUSE can.
    pub pollable: Option<bool>,
    /// The number of requests that the disk's queue holds.
    pub device_queue: Option<u32>,
}

/// The result of a read that must not wait (`RWF_NOWAIT`). io_uring tries each read this way first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NowaitReads {
    /// Such reads are performed.
    Taken,
    /// Such reads are performed only up to one page.
    OfOnePage,
    /// Such reads are always refused.
    Refused,
}

/// The result of a write that must not wait (`RWF_NOWAIT`). io_uring tries each write this way first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NowaitWrites {
    /// Such writes are performed.
    Taken,
    /// A write is refused if it has to update the file's timestamps: after each tick of their clock, until a write
    /// that may wait has updated them.
    WaitForTimes {
        /// The time between two ticks of that clock.
        tick: Duration,
    },
    /// Such writes are always refused.
    Refused,
}
