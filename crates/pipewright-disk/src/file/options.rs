//! Options to open a file with.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use pipewright_os::disk::file::{self, Access, Alignment, SyncMode};

use super::{DiskFile, Inner};
use crate::{Error, ErrorKind, Result};

/// Options to open a file with. Initially all are off.
///
/// ```no_run
/// use pipewright_disk::{Access, DiskFile};
/// let file = DiskFile::options()
///     .write(true)
///     .create(true)
///     .direct(true)
///     .preallocate(1 << 30)
///     .access(Access::Sequential)
///     .open("table.bin")?;
/// # Ok::<(), pipewright_disk::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "opens nothing until `open` is called"]
pub struct FileOptions {
    options: file::OpenOptions,
    preallocate: Option<u64>,
}

impl FileOptions {
    /// Opens the file for reading.
    pub fn read(mut self, yes: bool) -> FileOptions {
        self.options.read = yes;
        self
    }

    /// Opens the file for writing.
    pub fn write(mut self, yes: bool) -> FileOptions {
        self.options.write = yes;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(mut self, yes: bool) -> FileOptions {
        self.options.create = yes;
        self
    }

    /// Creates the file, and fails if it exists.
    pub fn create_new(mut self, yes: bool) -> FileOptions {
        self.options.create_new = yes;
        self
    }

    /// Truncates the file to length 0.
    pub fn truncate(mut self, yes: bool) -> FileOptions {
        self.options.truncate = yes;
        self
    }

    /// Appends every write to the end of the file; its offset is ignored. Concurrent writes are appended in any order. The bytes
    /// of one call of the system stay together; a write that takes several calls
    /// ([`write_all_at`](crate::Operation::write_all_at), after a short one) may have others' bytes in between.
    pub fn append(mut self, yes: bool) -> FileOptions {
        self.options.append = yes;
        self
    }

    /// Bypasses the system's cache (direct I/O). Buffers, offsets and lengths then have to be
    /// [aligned](DiskFile::alignment).
    ///
    /// # Platform
    /// Linux: `O_DIRECT`. Some filesystems accept it and use the cache anyway (`pipewright disk` reports
    /// that). macOS: `F_NOCACHE`. Windows: `FILE_FLAG_NO_BUFFERING`.
    pub fn direct(mut self, yes: bool) -> FileOptions {
        self.options.direct = yes;
        self
    }

    /// Preallocates that many bytes when the file is opened. The file is at least that long afterwards.
    ///
    /// A write into allocated space can be asynchronous on filesystems where a write that has to allocate space cannot.
    ///
    /// # Platform
    /// As for [`Operation::preallocate`](crate::Operation::preallocate).
    pub fn preallocate(mut self, bytes: u64) -> FileOptions {
        self.preallocate = Some(bytes);
        self
    }

    /// Treats [preallocated](FileOptions::preallocate) space as already written. Every user who can read the file can
    /// then read the previous contents of the disk there, **including parts of other users' deleted files**.
    ///
    /// Without this option Windows zeroes the space before each write that starts beyond the last written
    /// byte, inside the call. A file that is not written from beginning to end is therefore written
    /// synchronously, preallocated or not. Use the option only if every reader of the file may see such data, and
    /// overwrite all of it.
    ///
    /// # Platform
    /// Windows: `SetFileValidData`, which requires `SeManageVolumePrivilege` (an administrator's). The
    /// privilege is enabled for this process while the file is opened and during that call. Without it, a
    /// preallocation fails with [`PermissionDenied`](ErrorKind::PermissionDenied), and the file has the
    /// requested length. Elsewhere it does nothing: unwritten space reads as zeros anyway.
    #[doc(alias = "SetFileValidData")]
    pub fn expose_old_disk_contents(mut self, yes: bool) -> FileOptions {
        self.options.expose_old_disk_contents = yes;
        self
    }

    /// Hints at the order of reads, which decides whether the system reads ahead.
    ///
    /// # Platform
    /// Linux: `posix_fadvise`. macOS: `F_RDAHEAD`. Windows: `FILE_FLAG_SEQUENTIAL_SCAN`,
    /// `FILE_FLAG_RANDOM_ACCESS`.
    pub fn access(mut self, access: Access) -> FileOptions {
        self.options.access = access;
        self
    }

    /// Makes each write wait until its data are on the disk.
    ///
    /// # Platform
    /// Unix: `O_DSYNC`, `O_SYNC`. Windows: `FILE_FLAG_WRITE_THROUGH`.
    pub fn sync(mut self, mode: SyncMode) -> FileOptions {
        self.options.sync = mode;
        self
    }

    /// Opens the file. Child processes don't inherit it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] and other errors of the system; [`ErrorKind::Unsupported`] if the filesystem refuses
    /// direct I/O or preallocation; [`ErrorKind::NotSeekable`] for a pipe, a socket or a terminal;
    /// [`ErrorKind::NotOpenedFor`] for a preallocation of a file that is not writable.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<DiskFile> {
        let path = path.as_ref();
        let room = self.preallocate.filter(|bytes| *bytes > 0);
        if room.is_some() && !self.options.write && !self.options.append {
            let kind = ErrorKind::NotOpenedFor { what: "writing" };
            return Err(Error::new("preallocate", Some(path), kind));
        }
        let file = file::File::open(path, &self.options).map_err(|error| {
            let is_invalid = error.kind() == io::ErrorKind::InvalidInput;
            let error = Error::system("open", Some(path), error);
            // open(2): the filesystem does not support O_DIRECT.
            let is_direct = is_invalid && self.options.direct;
            if is_direct { error.with_kind(ErrorKind::Unsupported) } else { error }
        })?;
        let alignment = if self.options.direct {
            let alignment = file.alignment();
            alignment.map_err(|error| Error::system("get the alignment of", Some(path), error))?
        } else {
            Alignment::NONE
        };
        if let Some(bytes) = room {
            file.allocate(0, bytes)
                .map_err(|error| Error::system("preallocate", Some(path), error))?;
        }
        Ok(DiskFile(Arc::new(Inner {
            file,
            path: path.to_owned(),
            options: self.options,
            alignment,
            facts: OnceLock::new(),
            poisoned: AtomicBool::new(false),
        })))
    }
}
