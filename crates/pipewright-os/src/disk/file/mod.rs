//! Files whose bytes are named by their place: open, read, write, sync, and what the system knows of them.

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
pub use request::{Action, Finished, MAX_BYTES, Request};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// It can be read.
    pub read: bool,
    /// It can be written to.
    pub write: bool,
    /// It is made where it is not there.
    pub create: bool,
    /// It is made, and must not have been there.
    pub create_new: bool,
    /// It is emptied.
    pub truncate: bool,
    /// Whatever is written goes to its end.
    pub append: bool,
    /// Past the cache of the system.
    pub direct: bool,
    /// Whether a write waits for the disk.
    pub sync: SyncMode,
    /// In which order it will be read.
    pub access: Access,
    /// Room that it is given holds what other files left there.
    pub expose_old_disk_contents: bool,
}

impl OpenOptions {
    /// What std knows of them.
    fn of_std(&self) -> std::fs::OpenOptions {
        let mut options = std::fs::OpenOptions::new();
        options.read(self.read).write(self.write).append(self.append);
        options.create(self.create).create_new(self.create_new).truncate(self.truncate);
        options
    }
}

/// Whether each write waits until the disk has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// No: a sync later on does.
    #[default]
    None,
    /// Its data, and what it takes to find them again.
    Data,
    /// Its data, its times and whatever else is known of it.
    All,
}

/// In which order a file will be read. A hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Nothing is known.
    #[default]
    Normal,
    /// From the beginning to the end: read ahead.
    Sequential,
    /// Here and there: do not read ahead.
    Random,
}

/// An open file. Its copies are one file, which is closed with the last of them.
#[derive(Debug, Clone)]
pub struct File(Arc<imp::Open>);

impl File {
    /// Opens a file.
    ///
    /// # Platform
    /// Linux: `open(O_CLOEXEC)` with `O_DIRECT`, `O_DSYNC`, `O_SYNC` as asked; then `posix_fadvise`. macOS:
    /// `F_NOCACHE` in place of `O_DIRECT`, `F_RDAHEAD` for the hint. Windows: `CreateFileW` with
    /// `FILE_FLAG_OVERLAPPED` (without it the system lets one call after the other at a file, whatever threads
    /// make them), `FILE_FLAG_NO_BUFFERING`, `FILE_FLAG_WRITE_THROUGH`, `FILE_FLAG_SEQUENTIAL_SCAN`,
    /// `FILE_FLAG_RANDOM_ACCESS`.
    ///
    /// # Errors
    /// What the system says; `IsADirectory` for a directory, `NotSeekable` for a pipe or a socket, which have
    /// no places.
    pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
        // Before, because the open of a pipe waits for its other end; and after, because a name may have
        // come to mean something else in between.
        match fs::metadata(path) {
            Ok(found) => imp::require_seekable(&found)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let file = imp::open(path, options)?;
        imp::require_seekable(&file.metadata()?)?;
        Ok(File(Arc::new(file)))
    }

    /// Reads into the buffer from that place on; 0 is the end of the file.
    ///
    /// # Platform
    /// Unix: `pread`. Windows: `ReadFile` with the place in its `OVERLAPPED`.
    ///
    /// # Errors
    /// What the system says.
    #[doc(alias = "pread")]
    pub fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        imp::read_at(&self.0, to, offset)
    }

    /// Reads what is in memory already. `None`: it is not, or that cannot be known; nothing waited.
    ///
    /// May give less than is asked for: the part that is there.
    ///
    /// # Platform
    /// Linux: `preadv2(RWF_NOWAIT)`. Elsewhere `None`.
    ///
    /// # Errors
    /// What the system says.
    #[doc(alias = "preadv2")]
    pub fn read_cached_at(&self, to: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        imp::read_cached_at(&self.0, to, offset)
    }

    /// Writes from the buffer to that place on.
    ///
    /// # Platform
    /// Unix: `pwrite`. Windows: `WriteFile` with the place in its `OVERLAPPED`.
    ///
    /// # Errors
    /// What the system says.
    #[doc(alias = "pwrite")]
    pub fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        imp::write_at(&self.0, from, offset)
    }

    /// Waits until the disk has everything that was written, and what is known of the file.
    ///
    /// # Platform
    /// Linux: `fsync`. macOS: `F_FULLFSYNC`. Windows: `FlushFileBuffers`.
    ///
    /// # Errors
    /// What the system says. The next call may then succeed without the data being there.
    #[doc(alias = "fsync")]
    pub fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    /// Waits until the disk has everything that was written, and what it takes to find it again.
    ///
    /// # Platform
    /// Linux: `fdatasync`. macOS and Windows: as [`File::sync_all`].
    ///
    /// # Errors
    /// As [`File::sync_all`].
    #[doc(alias = "fdatasync")]
    pub fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    /// Gives the file room for those bytes on the disk; it becomes as long as that. No bytes need no room.
    ///
    /// # Platform
    /// Linux: `fallocate` without flags. macOS: `F_PREALLOCATE`, then `ftruncate`. Windows:
    /// `FileAllocationInfo`, `FileEndOfFileInfo`, and `SetFileValidData` where
    /// [`OpenOptions::expose_old_disk_contents`] asks for it.
    ///
    /// # Errors
    /// What the system says; `Unsupported` where the filesystem cannot. Zeros are never written in its place.
    #[doc(alias = "fallocate")]
    pub fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        imp::allocate(&self.0, offset, bytes)
    }

    /// Cuts it or lengthens it with a hole.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    /// How long it is, in bytes; a block device has its size.
    ///
    /// # Errors
    /// What the system says.
    pub fn len(&self) -> io::Result<u64> {
        imp::len(&self.0)
    }

    /// Whether it has no bytes.
    ///
    /// # Errors
    /// As [`File::len`].
    pub fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|bytes| bytes == 0)
    }

    /// What direct I/O on it has to be a multiple of.
    ///
    /// # Platform
    /// Linux 6.1 and later: `statx(STATX_DIOALIGN)`. Windows: `FileStorageInfo`. Where the system does not
    /// tell: 4096, and [`Alignment::reported`] is `false`. macOS: nothing has to be aligned.
    ///
    /// # Errors
    /// What the system says.
    #[doc(alias = "STATX_DIOALIGN")]
    pub fn alignment(&self) -> io::Result<Alignment> {
        imp::alignment(&self.0)
    }

    /// What decides how the system will read and write it.
    ///
    /// # Platform
    /// Linux: `statx`, `fstatfs`, `FS_IOC_GETFLAGS`, `/sys/dev/block`, a read past the end with
    /// `RWF_NOWAIT`, `epoll_ctl`. Elsewhere next to nothing.
    ///
    /// # Errors
    /// What the system says to the first of them; what the others do not tell is `None`.
    pub fn facts(&self) -> io::Result<Facts> {
        imp::facts(self)
    }

    /// What becomes of reads of that length that must not wait. `None`: that cannot be known.
    ///
    /// Tried out there, where the file has to have that much. A read through the cache of what is not in memory is
    /// refused by every filesystem, and tells nothing.
    ///
    /// # Platform
    /// Linux: `preadv2(RWF_NOWAIT)`. Elsewhere `None`.
    #[must_use]
    #[doc(alias = "RWF_NOWAIT")]
    pub fn nowait_reads(&self, to: &mut [u8], offset: u64) -> Option<NowaitReads> {
        imp::nowait_reads(&self.0, to, offset)
    }

    /// What becomes of writes that must not wait, to room that has been written to. `None`: that cannot be known.
    ///
    /// Tried out with that block, which is written there again and again for some milliseconds: give it what is
    /// there. The times of the file change.
    ///
    /// # Platform
    /// Linux: `pwritev2(RWF_NOWAIT)`, `futimens`. Elsewhere `None`.
    #[must_use]
    #[doc(alias = "RWF_NOWAIT")]
    pub fn nowait_writes(&self, block: &[u8], offset: u64) -> Option<NowaitWrites> {
        imp::nowait_writes(&self.0, block, offset)
    }

    /// In how many pieces (extents) that range lies on the disk. `None`: that cannot be known.
    ///
    /// # Platform
    /// Linux: `FS_IOC_FIEMAP`. Elsewhere `None`.
    #[must_use]
    #[doc(alias = "FS_IOC_FIEMAP")]
    pub fn extents(&self, offset: u64, bytes: u64) -> Option<usize> {
        imp::extents(&self.0, offset, bytes)
    }

    /// For how many writes at once, past the cache and in place, its filesystem has room to keep account of; about.
    /// `None`: for any number, or that cannot be known.
    ///
    /// # Platform
    /// Linux: on Btrfs `/sys/fs/btrfs/UUID/allocation`. Elsewhere `None`.
    #[must_use]
    pub fn write_room(&self) -> Option<usize> {
        imp::write_room(&self.0)
    }

    /// How many bytes of that range are in memory. `None`: that cannot be known.
    ///
    /// # Platform
    /// Linux 6.5 and later: `cachestat`. Elsewhere `None`.
    #[must_use]
    #[doc(alias = "cachestat")]
    pub fn cached_bytes(&self, offset: u64, bytes: u64) -> Option<u64> {
        imp::cached_bytes(&self.0, offset, bytes)
    }

    /// How many bytes of that range are in memory and not on the disk yet. `None`: that cannot be known.
    ///
    /// # Platform
    /// As [`File::cached_bytes`].
    #[must_use]
    #[doc(alias = "cachestat")]
    pub fn unwritten_bytes(&self, offset: u64, bytes: u64) -> Option<u64> {
        imp::unwritten_bytes(&self.0, offset, bytes)
    }

    /// Asks for memory not to hold that file any longer. What has not been written yet stays.
    ///
    /// # Platform
    /// Linux: `posix_fadvise(POSIX_FADV_DONTNEED)`. Elsewhere nothing.
    ///
    /// # Errors
    /// What the system says.
    #[doc(alias = "posix_fadvise")]
    pub fn forget_cache(&self) -> io::Result<()> {
        imp::forget_cache(&self.0)
    }

    /// Where the next hole begins, at or after that place; the end of the file is one.
    ///
    /// # Platform
    /// Linux: `lseek(SEEK_HOLE)`. Elsewhere `None`.
    #[must_use]
    #[doc(alias = "SEEK_HOLE")]
    pub fn next_hole(&self, from: u64) -> Option<u64> {
        imp::next_hole(&self.0, from)
    }
}

/// Has a disk for this process alone, as far as the system is asked: until the handle is closed it is mounted by nobody.
///
/// # Platform
/// Linux: `open(O_EXCL)`. Elsewhere it is opened, and others are not kept away.
///
/// # Errors
/// What the system says; `ResourceBusy` where it is mounted, or a part of another disk.
#[doc(alias = "O_EXCL")]
pub fn claim_disk(path: &Path) -> io::Result<fs::File> {
    imp::claim_disk(path)
}

/// Whether both names are names of one file.
///
/// # Platform
/// Unix: the device and the number of the file. Windows: what the names come to.
///
/// # Errors
/// One of them is not there, or may not be looked at.
pub fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    imp::is_same(one, other)
}

/// Asks for a file without anything in it to be written in place from here on, without copies and checksums.
///
/// # Platform
/// Linux: `FS_IOC_SETFLAGS` with `FS_NOCOW_FL` (`chattr +C`). Elsewhere `Unsupported`.
///
/// # Errors
/// What the system says; the filesystem knows no such flag.
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

/// Directories, pipes and sockets.
fn not_seekable(is_directory: bool) -> io::Error {
    if is_directory {
        io::Error::new(io::ErrorKind::IsADirectory, "is a directory")
    } else {
        io::Error::new(io::ErrorKind::NotSeekable, "is neither a file nor a disk")
    }
}
