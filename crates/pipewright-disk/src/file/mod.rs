//! An open file and its properties.

mod check;
mod options;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pipewright_os::base::aligned::AlignedBuf;
use pipewright_os::base::memory::page_bytes;
use pipewright_os::disk::file::{self, Alignment, Facts};

use crate::{Error, Result};

pub use options::FileOptions;
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
    /// So the library calls each sync once, whatever its error is, `EINTR` too. A sync that was cancelled before it began
    /// loses nothing and doesn't poison the file; nor does one that a character device or a file of `/proc` doesn't support
    /// (`EINVAL`, `EOPNOTSUPP`, `ENOSYS`).
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.0.poisoned.load(Ordering::Acquire)
    }

    /// Returns true if every write is appended to the end of the file.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_append(&self) -> bool {
        self.0.options.append
    }

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
