//! Files that are read and written by offset, and their properties.

#[cfg(target_os = "linux")]
mod linux;
mod request;
#[cfg(windows)]
mod windows;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(windows)]
use windows as imp;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

#[cfg(any(target_os = "linux", windows))]
pub(crate) use request::InFlight;
pub use request::{Action, FileRequest, FinishedRequest, MAX_BYTES};

/// The options to open a file with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Opens the file for reading.
    pub read: bool,
    /// Opens the file for writing.
    pub write: bool,
    /// Creates the file if it does not exist.
    pub create: bool,
    /// Creates the file, and fails if it exists.
    pub create_new: bool,
    /// Truncates the file to length 0.
    pub truncate: bool,
    /// Appends every write to the end of the file.
    pub append: bool,
    /// Bypasses the system's cache.
    pub direct: bool,
    /// The data that each write waits for.
    pub sync: SyncMode,
    /// A hint at the order of reads.
    pub access: Access,
    /// Treats allocated space as valid, with whatever other files left there.
    pub expose_old_disk_contents: bool,
}

impl OpenOptions {
    /// Returns the options that std supports.
    fn of_std(&self) -> std::fs::OpenOptions {
        let mut options = std::fs::OpenOptions::new();
        options.read(self.read).write(self.write).append(self.append);
        options.create(self.create).create_new(self.create_new).truncate(self.truncate);
        options
    }
}

/// The data that have to be on the disk before a write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// None: a later sync writes them.
    #[default]
    None,
    /// The data, and the metadata needed to find them again.
    Data,
    /// The data and all metadata, such as timestamps.
    All,
}

/// A hint at the order of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// No hint.
    #[default]
    Normal,
    /// From beginning to end: read ahead.
    Sequential,
    /// In random order: don't read ahead.
    Random,
}

/// An open file. Clones share it, and the last one closes it.
#[derive(Debug, Clone)]
pub struct File(Arc<imp::Open>);

impl File {
    /// Opens a file.
    ///
    /// # Platform
    /// Linux: `open(O_CLOEXEC)` with `O_DIRECT`, `O_DSYNC`, `O_SYNC` as requested, then `posix_fadvise`.
    /// macOS: `F_NOCACHE` instead of `O_DIRECT`, `F_RDAHEAD` for the hint. Windows: `CreateFileW` with
    /// `FILE_FLAG_OVERLAPPED` (otherwise the system serializes all calls on a file, from any thread),
    /// `FILE_FLAG_NO_BUFFERING`, `FILE_FLAG_WRITE_THROUGH`, `FILE_FLAG_SEQUENTIAL_SCAN`,
    /// `FILE_FLAG_RANDOM_ACCESS`.
    ///
    /// # Errors
    /// The system's error; `IsADirectory` for a directory; `NotSeekable` for a pipe or a socket, which has no
    /// offsets.
    pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
        // Checked before, because opening a pipe waits for its other end, and after, because the name may mean
        // another file by then.
        match fs::metadata(path) {
            Ok(found) => imp::require_seekable(&found)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let file = imp::open(path, options)?;
        imp::require_seekable(&file.metadata()?)?;
        Ok(File(Arc::new(file)))
    }

    /// Reads into the buffer at that offset. 0 bytes mean the end of the file.
    ///
    /// # Platform
    /// Unix: `pread`. Windows: `ReadFile` with the offset in its `OVERLAPPED`.
    ///
    /// # Errors
    /// The system's error.
    #[doc(alias = "pread")]
    pub fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        imp::read_at(&self.0, to, offset)
    }

    /// Reads data that are in memory, without waiting. `None` if they are not in memory, or if that is
    /// unknown.
    ///
    /// May return less than requested: the part in memory.
    ///
    /// # Platform
    /// Linux: `preadv2(RWF_NOWAIT)`. Elsewhere `None`.
    ///
    /// # Errors
    /// The system's error.
    #[doc(alias = "preadv2")]
    pub fn read_cached_at(&self, to: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        imp::read_cached_at(&self.0, to, offset)
    }

    /// Writes from the buffer at that offset.
    ///
    /// # Platform
    /// Unix: `pwrite`. Windows: `WriteFile` with the offset in its `OVERLAPPED`.
    ///
    /// # Errors
    /// The system's error.
    #[doc(alias = "pwrite")]
    pub fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        imp::write_at(&self.0, from, offset)
    }

    /// Flushes the written data and all metadata to the disk, by one call, which is never repeated.
    ///
    /// # Platform
    /// Linux: `fsync`. macOS: `F_FULLFSYNC`. Windows: `FlushFileBuffers`.
    ///
    /// # Errors
    /// The system's error, `EINTR` too. The next call may then succeed although the data are not on the disk.
    #[doc(alias = "fsync")]
    pub fn sync_all(&self) -> io::Result<()> {
        imp::sync_all(&self.0)
    }

    /// Flushes the written data to the disk, and the metadata needed to find them again.
    ///
    /// # Platform
    /// Linux: `fdatasync`. macOS and Windows: as for [`File::sync_all`].
    ///
    /// # Errors
    /// As for [`File::sync_all`].
    #[doc(alias = "fdatasync")]
    pub fn sync_data(&self) -> io::Result<()> {
        imp::sync_data(&self.0)
    }

    /// Returns true if data may be written to the file that are not on the disk yet. False for a character device, and
    /// for a file that the kernel answers itself (`/proc`, `/sys`); an unknown file may have some.
    ///
    /// # Platform
    /// Linux: `fstat`, `fstatfs`. macOS: `fstat`. Windows: `GetFileType`.
    #[must_use]
    pub fn may_have_unwritten_data(&self) -> bool {
        imp::may_have_unwritten_data(&self.0)
    }

    /// Allocates disk space for the range and extends the file to its end. Does nothing for 0 bytes.
    ///
    /// # Platform
    /// Linux: `fallocate` without flags. macOS: `F_PREALLOCATE`, then `ftruncate`. Windows:
    /// `FileAllocationInfo`, `FileEndOfFileInfo`, and `SetFileValidData` if
    /// [`OpenOptions::expose_old_disk_contents`] is set.
    ///
    /// # Errors
    /// The system's error; `Unsupported` if the filesystem cannot. Never falls back to writing zeros.
    #[doc(alias = "fallocate")]
    pub fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        imp::allocate(&self.0, offset, bytes)
    }

    /// Truncates the file, or extends it with a hole.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    /// Returns the length in bytes. For a block device, this is its size.
    ///
    /// # Errors
    /// The system's error.
    pub fn len(&self) -> io::Result<u64> {
        imp::len(&self.0)
    }

    /// Returns true if the file has no bytes.
    ///
    /// # Errors
    /// As for [`File::len`].
    pub fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|bytes| bytes == 0)
    }

    /// Returns the alignment that direct I/O on this file requires.
    ///
    /// # Platform
    /// Linux 6.1 and later: `statx(STATX_DIOALIGN)`. Windows: `FileStorageInfo`. If the system doesn't report
    /// it: 4096, and [`Alignment::reported`] is `false`. macOS: no alignment is required.
    ///
    /// # Errors
    /// The system's error.
    #[doc(alias = "STATX_DIOALIGN")]
    pub fn alignment(&self) -> io::Result<Alignment> {
        imp::alignment(&self.0)
    }

    /// Returns the properties that decide how the system reads and writes the file.
    ///
    /// # Platform
    /// Linux: `statx`, `fstatfs`, `FS_IOC_GETFLAGS`, `/sys/dev/block`, a read past the end with `RWF_NOWAIT`,
    /// `epoll_ctl`. Elsewhere few of them are known.
    ///
    /// # Errors
    /// The system's error from `statx`. Properties that the other calls don't report are `None`.
    pub fn facts(&self) -> io::Result<Facts> {
        imp::facts(self)
    }

    /// Returns the result of reads of that length that must not wait. `None` if it is unknown.
    ///
    /// The read is tried at that offset, where the file must have as many bytes. Only direct reads give an
    /// answer: every filesystem refuses a read through the cache if the data are not in memory.
    ///
    /// # Platform
    /// Linux: `preadv2(RWF_NOWAIT)`. Elsewhere `None`.
    #[must_use]
    #[doc(alias = "RWF_NOWAIT")]
    pub fn nowait_reads(&self, to: &mut [u8], offset: u64) -> Option<NowaitReads> {
        imp::nowait_reads(&self.0, to, offset)
    }

    /// Returns the result of writes that must not wait, to space that was written before. `None` if it is
    /// unknown.
    ///
    /// The block is written at that offset repeatedly for some milliseconds, so pass the current contents of
    /// the file. Changes the file's timestamps.
    ///
    /// # Platform
    /// Linux: `pwritev2(RWF_NOWAIT)`, `futimens`. Elsewhere `None`.
    #[must_use]
    #[doc(alias = "RWF_NOWAIT")]
    pub fn nowait_writes(&self, block: &[u8], offset: u64) -> Option<NowaitWrites> {
        imp::nowait_writes(&self.0, block, offset)
    }

    /// Returns the number of extents of the range on the disk. `None` if it is unknown.
    ///
    /// # Platform
    /// Linux: `FS_IOC_FIEMAP`. Elsewhere `None`.
    #[must_use]
    #[doc(alias = "FS_IOC_FIEMAP")]
    pub fn extents(&self, offset: u64, bytes: u64) -> Option<usize> {
        imp::extents(&self.0, offset, bytes)
    }

    /// Returns the approximate number of concurrent direct writes in place for which the filesystem has
    /// metadata space. `None` if there is no limit, or if it is unknown.
    ///
    /// # Platform
    /// Linux: on Btrfs `/sys/fs/btrfs/UUID/allocation`. Elsewhere `None`.
    #[must_use]
    pub fn write_room(&self) -> Option<usize> {
        imp::write_room(&self.0)
    }

    /// Returns the number of bytes of the range that are in memory. `None` if it is unknown.
    ///
    /// # Platform
    /// Linux 6.5 and later: `cachestat`. Elsewhere `None`.
    #[must_use]
    #[doc(alias = "cachestat")]
    pub fn cached_bytes(&self, offset: u64, bytes: u64) -> Option<u64> {
        imp::cached_bytes(&self.0, offset, bytes)
    }

    /// Returns the number of bytes of the range that are in memory and not yet on the disk. `None` if it is
    /// unknown.
    ///
    /// # Platform
    /// As for [`File::cached_bytes`].
    #[must_use]
    #[doc(alias = "cachestat")]
    pub fn unwritten_bytes(&self, offset: u64, bytes: u64) -> Option<u64> {
        imp::unwritten_bytes(&self.0, offset, bytes)
    }

    /// Asks the system to drop the file's clean pages from its cache.
    ///
    /// # Platform
    /// Linux: `posix_fadvise(POSIX_FADV_DONTNEED)`. Elsewhere it does nothing.
    ///
    /// # Errors
    /// The system's error.
    #[doc(alias = "posix_fadvise")]
    pub fn forget_cache(&self) -> io::Result<()> {
        imp::forget_cache(&self.0)
    }

    /// Returns the offset of the next hole, at or after that offset. The end of the file counts as one.
    ///
    /// # Platform
    /// Linux: `lseek(SEEK_HOLE)`. Elsewhere `None`.
    #[must_use]
    #[doc(alias = "SEEK_HOLE")]
    pub fn next_hole(&self, from: u64) -> Option<u64> {
        imp::next_hole(&self.0, from)
    }
}

/// Opens a disk for exclusive use, where the system can: it cannot be mounted until the handle is closed.
///
/// # Platform
/// Linux: `open(O_EXCL)`. Elsewhere the disk is opened without excluding others.
///
/// # Errors
/// The system's error; `ResourceBusy` if the disk is mounted or part of another disk.
#[doc(alias = "O_EXCL")]
pub fn claim_disk(path: &Path) -> io::Result<fs::File> {
    imp::claim_disk(path)
}

/// Returns true if both paths name the same file.
///
/// # Platform
/// Unix: compares the device and the inode number. Windows: compares the canonical paths.
///
/// # Errors
/// One of the files does not exist or cannot be accessed.
pub fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    imp::is_same(one, other)
}

/// Returns true if both are the same file. A name may be that of another file when it is opened again.
///
/// # Platform
/// Windows: true, without a look.
///
/// # Errors
/// The error of the system.
pub fn is_same_open(one: &File, other: &fs::File) -> io::Result<bool> {
    imp::is_same_open(&one.0, other)
}

/// Makes the filesystem write an empty file in place from now on, without copies and checksums.
///
/// # Platform
/// Linux: `FS_IOC_SETFLAGS` with `FS_NOCOW_FL` (`chattr +C`). Elsewhere `Unsupported`.
///
/// # Errors
/// The system's error; the filesystem does not support the flag.
#[doc(alias = "FS_NOCOW_FL")]
pub fn write_in_place(file: &fs::File) -> io::Result<()> {
    imp::write_in_place(file)
}

#[cfg(unix)]
impl std::os::fd::AsFd for File {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the error for a directory, or for a pipe or a socket.
fn not_seekable(is_directory: bool) -> io::Error {
    if is_directory {
        io::Error::new(io::ErrorKind::IsADirectory, "is a directory")
    } else {
        io::Error::new(io::ErrorKind::NotSeekable, "neither a file nor a disk")
    }
}

// The properties of a file that decide how the system reads and writes it.

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

// `F_NOCACHE`, `F_RDAHEAD`, `F_PREALLOCATE`.
#[cfg(target_os = "macos")]
mod imp {
    use std::os::fd::AsRawFd as _;
    use std::path::Path;
    use std::{fs, io};

    pub(super) use super::unix::{
        is_same, is_same_open, read_at, require_seekable, sync_all, sync_data, write_at,
    };
    pub(super) use super::unsupported::{
        cached_bytes, claim_disk, extents, forget_cache, len, next_hole, nowait_reads,
        nowait_writes, read_cached_at, unwritten_bytes, write_in_place, write_room,
    };
    use super::{Access, Alignment, Facts, File, OpenOptions};

    pub(super) type Open = fs::File;

    pub(super) fn open(path: &Path, options: &OpenOptions) -> io::Result<fs::File> {
        let file = super::unix::open(path, options, 0)?;
        if options.direct {
            set(&file, libc::F_NOCACHE, 1)?;
        }
        match options.access {
            Access::Normal => {}
            Access::Sequential => set(&file, libc::F_RDAHEAD, 1)?,
            Access::Random => set(&file, libc::F_RDAHEAD, 0)?,
        }
        Ok(file)
    }

    fn set(file: &fs::File, command: libc::c_int, to: libc::c_int) -> io::Result<()> {
        // SAFETY: an open file, and a command that takes a number.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), command, to) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(super) fn allocate(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let length = len(file)?;
        if end <= length {
            // No call fills holes.
            return Ok(());
        }
        let room = i64::try_from(end - length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let store = libc::fstore_t {
            fst_flags: libc::F_ALLOCATEALL,
            fst_posmode: libc::F_PEOFPOSMODE,
            fst_offset: 0,
            fst_length: room,
            fst_bytesalloc: 0,
        };
        // SAFETY: an open file, and the struct that the command takes.
        let result =
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PREALLOCATE, &raw const store) };
        if result == -1 {
            return Err(io::Error::last_os_error());
        }
        file.set_len(end)
    }

    pub(super) fn may_have_unwritten_data(file: &fs::File) -> bool {
        !super::unix::is_character_device(file)
    }

    pub(super) fn alignment(_: &fs::File) -> io::Result<Alignment> {
        Ok(Alignment::NONE)
    }

    pub(super) fn facts(file: &File) -> io::Result<Facts> {
        Ok(Facts { length: file.len()?, ..Facts::default() })
    }
}

// The calls that Unix systems share: `open`, `pread`, `pwrite`, `fsync`.
#[cfg(unix)]
mod unix {
    use std::fs::{File, Metadata};
    use std::io;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::{
        FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    };
    use std::path::Path;

    use super::{OpenOptions, SyncMode, not_seekable};

    /// Opens the file with additional flags.
    pub(super) fn open(path: &Path, options: &OpenOptions, flags: libc::c_int) -> io::Result<File> {
        let sync = match options.sync {
            SyncMode::None => 0,
            SyncMode::Data => libc::O_DSYNC,
            SyncMode::All => libc::O_SYNC,
        };
        options.of_std().custom_flags(flags | sync).open(path)
    }

    pub(super) fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
        let (one, other) = (std::fs::metadata(one)?, std::fs::metadata(other)?);
        Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
    }

    pub(super) fn is_same_open(one: &File, other: &File) -> io::Result<bool> {
        let (one, other) = (one.metadata()?, other.metadata()?);
        Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
    }

    pub(super) fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(to, offset)
    }

    pub(super) fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(from, offset)
    }

    // The functions of std repeat the call after EINTR: the second one would succeed without the data that the first
    // one has lost.
    pub(super) fn sync_all(file: &File) -> io::Result<()> {
        #[cfg(target_os = "macos")]
        // SAFETY: an open file, and a command without an argument.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_FULLFSYNC) };
        #[cfg(not(target_os = "macos"))]
        // SAFETY: an open file.
        let result = unsafe { libc::fsync(file.as_raw_fd()) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(super) fn sync_data(file: &File) -> io::Result<()> {
        #[cfg(target_os = "macos")]
        return sync_all(file);
        #[cfg(not(target_os = "macos"))]
        // SAFETY: an open file.
        match unsafe { libc::fdatasync(file.as_raw_fd()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    pub(super) fn is_character_device(file: &File) -> bool {
        file.metadata().is_ok_and(|found| found.file_type().is_char_device())
    }

    pub(super) fn require_seekable(found: &Metadata) -> io::Result<()> {
        let kind = found.file_type();
        if kind.is_file() || kind.is_block_device() || kind.is_char_device() {
            Ok(())
        } else {
            Err(not_seekable(kind.is_dir()))
        }
    }
}

// The answers of systems that have no call to look into the page cache, the extents or the flags of a file.
//
// macOS and Windows share them.
#[cfg(not(target_os = "linux"))]
mod unsupported {
    use std::path::Path;
    use std::{fs, io};

    use super::{NowaitReads, NowaitWrites};

    /// Returns `None`: no call reads only data that are in memory.
    pub(super) fn read_cached_at(_: &fs::File, _: &mut [u8], _: u64) -> io::Result<Option<usize>> {
        Ok(None)
    }

    pub(super) fn len(file: &fs::File) -> io::Result<u64> {
        file.metadata().map(|found| found.len())
    }

    pub(super) fn nowait_reads(_: &fs::File, _: &mut [u8], _: u64) -> Option<NowaitReads> {
        None
    }

    pub(super) fn nowait_writes(_: &fs::File, _: &[u8], _: u64) -> Option<NowaitWrites> {
        None
    }

    pub(super) fn extents(_: &fs::File, _: u64, _: u64) -> Option<usize> {
        None
    }

    pub(super) fn write_room(_: &fs::File) -> Option<usize> {
        None
    }

    pub(super) fn cached_bytes(_: &fs::File, _: u64, _: u64) -> Option<u64> {
        None
    }

    pub(super) fn unwritten_bytes(_: &fs::File, _: u64, _: u64) -> Option<u64> {
        None
    }

    pub(super) fn forget_cache(_: &fs::File) -> io::Result<()> {
        Ok(())
    }

    /// Opens the disk. Nothing keeps other processes away from it.
    pub(super) fn claim_disk(path: &Path) -> io::Result<fs::File> {
        fs::File::open(path)
    }

    pub(super) fn write_in_place(_: &fs::File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn next_hole(_: &fs::File, _: u64) -> Option<u64> {
        None
    }
}
