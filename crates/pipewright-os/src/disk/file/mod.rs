//! Files that are read and written by offset, and their properties.

mod facts;
mod request;
#[cfg(unix)]
mod unix;
#[cfg(not(target_os = "linux"))]
mod unsupported;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use facts::{Alignment, Facts, Filesystem, NowaitReads, NowaitWrites};
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
