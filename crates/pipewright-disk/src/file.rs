//! An open file: its options, its properties, and the checks of an operation that need no system call.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pipewright_os::base::memory::{AlignedBuf, page_bytes};
use pipewright_os::disk::file::{self, Action, Alignment, Facts};

use crate::error::{Misaligned, Part};
use crate::{Error, ErrorKind, Result};

pub use pipewright_os::disk::file::{Access, SyncMode};

/// A file that is read and written by offset. Clones share one open file.
///
/// Open it with [`DiskFile::options`]. An [`Engine`](crate::Engine) performs operations on it.
///
/// # Drop
/// The file is closed with its last clone. Each operation in flight holds one.
///
/// ```
/// use pipewright_disk::{DiskFile, Engine, EngineOptions};
/// let path = std::env::temp_dir().join(format!("pipewright-doc-{}", std::process::id()));
/// let file = DiskFile::options().read(true).write(true).create(true).open(&path)?;
/// let mut engine = Engine::new(EngineOptions::default())?;
///
/// let mut buffer = file.buffer(4096)?;
/// buffer[..5].copy_from_slice(b"hello");
/// let done = engine.write_all_at(&file, buffer, 0);
/// assert_eq!(done.result?.bytes, 4096);
///
/// let done = engine.read_exact_at(&file, done.buffer, 0);
/// assert_eq!(&done.buffer[..5], b"hello");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), pipewright_disk::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DiskFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: file::File,
    path: PathBuf,
    options: file::OpenOptions,
    alignment: Alignment,
    facts: OnceLock<Facts>,
    poisoned: AtomicBool,
}

impl DiskFile {
    /// Returns options to open a file with.
    pub fn options() -> FileOptions {
        FileOptions::default()
    }

    /// Returns the path that the file was opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns true if the file was opened for direct I/O, which bypasses the cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.0.options.direct
    }

    /// Returns the data that each write waits for.
    pub(crate) fn sync_mode(&self) -> SyncMode {
        self.0.options.sync
    }

    /// Returns the alignment that direct I/O on this file requires.
    ///
    /// # Platform
    /// Linux 6.1 and later: `statx(STATX_DIOALIGN)`. Windows: `FileStorageInfo`. If the system doesn't report
    /// it: 4096, and [`reported`](Alignment::reported) is `false`. macOS: no alignment is required.
    #[must_use]
    pub fn alignment(&self) -> Alignment {
        self.0.alignment
    }

    /// Allocates a zeroed buffer that is aligned for this file.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn buffer(&self, bytes: usize) -> Result<AlignedBuf> {
        let mut align = self.0.alignment.memory;
        if self.is_direct() {
            // A block that spans two pages needs two segments of a disk request.
            align = align.max(page_bytes());
        }
        AlignedBuf::zeroed(bytes, align)
            .map_err(|error| Error::system("allocate a buffer for", Some(self.path()), error))
    }

    /// Returns the length in bytes. For a block device, this is its size.
    ///
    /// # Errors
    /// The system's error.
    pub fn len(&self) -> Result<u64> {
        self.wrap("get the length of", self.0.file.len())
    }

    /// Returns true if the file has no bytes.
    ///
    /// # Errors
    /// As for [`DiskFile::len`].
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|bytes| bytes == 0)
    }

    /// Truncates the file, or extends it with a hole.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.wrap("change the length of", self.0.file.set_len(bytes))
    }

    /// Asks the system to drop the file's clean pages from its cache.
    ///
    /// # Platform
    /// Linux: `posix_fadvise(POSIX_FADV_DONTNEED)`. Elsewhere it does nothing.
    ///
    /// # Errors
    /// The system's error.
    pub fn forget_cache(&self) -> Result<()> {
        self.wrap("drop the cache of", self.0.file.forget_cache())
    }

    /// Returns the number of bytes of the range that are in memory. `None` if that is unknown.
    ///
    /// # Platform
    /// Linux 6.5 and later: `cachestat`, which requires write access to the file or its ownership. Elsewhere
    /// `None`.
    #[must_use]
    pub fn cached_bytes(&self, offset: u64, bytes: u64) -> Option<u64> {
        self.0.file.cached_bytes(offset, bytes)
    }

    /// Returns true if a sync of the file has failed. From then on, writes and syncs fail with
    /// [`Poisoned`](crate::ErrorKind::Poisoned).
    ///
    /// The kernel reports a failed sync only once. It then drops the data that could not be written from memory, and
    /// the next sync succeeds without them, so a retry would hide the loss. Read back the data you need, and write
    /// them to another file.
    ///
    /// So the library calls each sync once, whatever its error is, `EINTR` too. A sync that was cancelled before it
    /// began loses nothing and doesn't poison the file; nor does one that a character device or a file of `/proc`
    /// doesn't support (`EINVAL`, `EOPNOTSUPP`, `ENOSYS`).
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.0.poisoned.load(Ordering::Acquire)
    }

    /// Returns true if every write is appended to the end of the file.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_append(&self) -> bool {
        self.0.options.append
    }

    /// Notes that a sync has failed. Nothing takes this back: a later sync that succeeds says nothing about the lost
    /// data.
    pub(crate) fn poison(&self) {
        self.0.poisoned.store(true, Ordering::Release);
    }

    /// Returns the properties that decide how the system reads and writes the file. Looks them up on first
    /// use.
    pub(crate) fn facts(&self) -> &Facts {
        self.0.facts.get_or_init(|| self.0.file.facts().unwrap_or_default())
    }

    pub(crate) fn os(&self) -> &file::File {
        &self.0.file
    }

    fn wrap<T>(&self, operation: &'static str, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|error| Error::system(operation, Some(self.path()), error))
    }
}

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

    /// Appends every write to the end of the file; its offset is ignored. Concurrent writes are appended in any order.
    /// The bytes of one call of the system stay together; a write that takes several calls
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

impl DiskFile {
    /// Returns the error of an operation that cannot succeed.
    pub(crate) fn rejection(
        &self,
        action: Action,
        buffer: &AlignedBuf,
        offset: u64,
    ) -> Option<ErrorKind> {
        let options = &self.0.options;
        let is_writable = options.write || options.append;
        match action {
            Action::Read if !options.read => {
                return Some(ErrorKind::NotOpenedFor { what: "reading" });
            }
            Action::Write | Action::Allocate(_) if !is_writable => {
                return Some(ErrorKind::NotOpenedFor { what: "writing" });
            }
            Action::Write | Action::SyncAll | Action::SyncData if self.is_poisoned() => {
                return Some(ErrorKind::Poisoned);
            }
            Action::Read | Action::Write => {}
            _ => return None,
        }
        // The end of the operation has to be a valid offset too (off_t).
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Some(ErrorKind::InvalidInput);
        }
        if !options.direct {
            return None;
        }
        let offset = if options.append { 0 } else { offset };
        let address = buffer.as_ptr() as u64;
        misaligned(self.0.alignment, address, offset, buffer.len()).map(ErrorKind::Misaligned)
    }

    /// Returns true if cached data of the file can be read at once.
    pub(crate) fn may_be_cached(&self) -> bool {
        self.0.options.read && !self.0.options.direct
    }
}

/// Returns the first misaligned part.
fn misaligned(alignment: Alignment, address: u64, offset: u64, bytes: usize) -> Option<Misaligned> {
    let parts = [
        (Part::Memory, alignment.memory, address),
        (Part::Offset, alignment.offset, offset),
        (Part::Length, alignment.offset, bytes as u64),
    ];
    let off = |(_, needed, given): &(Part, usize, u64)| given % (*needed).max(1) as u64 != 0;
    let (part, needed, given) = parts.into_iter().find(off)?;
    Some(Misaligned { part, needed, given, reported: alignment.reported })
}

#[cfg(test)]
mod tests {
    use super::{Alignment, Part, misaligned};

    #[test]
    fn misaligned_error_names_part_required_and_given_value() {
        let alignment = Alignment { memory: 4, offset: 512, reported: true, direct: Some(true) };
        assert_eq!(misaligned(alignment, 4096, 512, 1024), None);
        for (address, offset, bytes, part, needed, given) in [
            (4097, 512, 512, Part::Memory, 4, 4097),
            (4096, 100, 512, Part::Offset, 512, 100),
            (4096, 512, 511, Part::Length, 512, 511),
        ] {
            let found = misaligned(alignment, address, offset, bytes).unwrap();
            assert_eq!((found.part, found.needed, found.given), (part, needed, given));
        }
        let found = misaligned(Alignment::ASSUMED, 0, 512, 4096).unwrap();
        assert_eq!(
            found.to_string(),
            "the offset of a direct request must be a multiple of 4096, got 512 (assumed: the system \
             does not report it)"
        );
    }
}
