//! What a system knows of a file that decides how it is read and written.

use std::time::Duration;

/// What direct I/O has to be a multiple of, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// The place of a buffer in memory.
    pub memory: usize,
    /// The place in the file, and the length.
    pub offset: usize,
    /// Whether the system has told so; else it is what suits every disk.
    pub reported: bool,
    /// Whether direct I/O bypasses the cache at all: `Some(false)` where the system says that it cannot.
    pub direct: Option<bool>,
}

impl Alignment {
    /// Suits every disk, and every filesystem up to pages of 4 KiB.
    pub const ASSUMED: Alignment =
        Alignment { memory: 4096, offset: 4096, reported: false, direct: None };
    /// Nothing has to be aligned.
    pub const NONE: Alignment = Alignment { memory: 1, offset: 1, reported: true, direct: None };
}

/// The kind of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filesystem {
    /// ext2, ext3 and ext4, which have one number.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// F2FS.
    F2fs,
    /// In memory.
    Tmpfs,
    /// Layers over another filesystem: the root of most containers.
    Overlay,
    /// In a program of its own.
    Fuse,
    /// Over the network.
    Nfs,
    /// ZFS.
    Zfs,
    /// None: a disk itself.
    Device,
    /// Another one, by its number.
    Other(u64),
}

impl Filesystem {
    /// What `statfs` says in `f_type`.
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

    /// Its name, as `mount` has it.
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

/// What decides how a system reads and writes a file. What is not known is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Facts {
    /// How long it is.
    pub length: u64,
    /// Where it is.
    pub filesystem: Option<Filesystem>,
    /// It is stored compressed.
    pub compressed: Option<bool>,
    /// It is stored encrypted, by the filesystem.
    pub encrypted: Option<bool>,
    /// It is written in place, without copies and checksums (`chattr +C`).
    pub no_copy_on_write: Option<bool>,
    /// The filesystem can be asked not to wait (`RWF_NOWAIT`).
    pub nowait: Option<bool>,
    /// It can be polled, which no ordinary file can; those in FUSE can.
    pub pollable: Option<bool>,
    /// How many requests the queue of its disk takes.
    pub device_queue: Option<u32>,
}

/// What becomes of a read that must not wait (`RWF_NOWAIT`), as io_uring first tries each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NowaitReads {
    /// It is done.
    Taken,
    /// It is done where it asks for no more than a page of memory.
    OfOnePage,
    /// It is always refused.
    Refused,
}

/// What becomes of a write that must not wait (`RWF_NOWAIT`), as io_uring first tries each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NowaitWrites {
    /// It is done.
    Taken,
    /// It is refused where it changes the times of the file: once the clock that they are from has moved on, and
    /// until a write that may wait has changed them.
    WaitForTimes {
        /// How long it takes that clock to move on.
        tick: Duration,
    },
    /// It is always refused.
    Refused,
}
