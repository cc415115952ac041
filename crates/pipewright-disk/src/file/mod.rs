//! An open file, and what is known of it.

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

/// A file whose bytes are read and written by their place. Its copies are one file.
///
/// Opened by [`DiskFile::options`]. An [`Engine`](crate::Engine) carries out operations on it.
///
/// # Drop
/// The file is closed with its last copy; operations under way have one.
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
    /// How a file is to be opened.
    pub fn options() -> FileOptions {
        FileOptions::default()
    }

    /// The path that it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether it was opened to bypass the cache of the system.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.0.options.direct
    }

    /// What direct I/O on it has to be a multiple of.
    ///
    /// # Platform
    /// Linux 6.1 and later: `statx(STATX_DIOALIGN)`. Windows: `FileStorageInfo`. Where the system does not
    /// tell: 4096, and [`reported`](Alignment::reported) is `false`. macOS: nothing has to be aligned.
    #[must_use]
    pub fn alignment(&self) -> Alignment {
        self.0.alignment
    }

    /// A buffer of zeros that suits this file.
    ///
    /// # Errors
    /// There is no such room.
    pub fn buffer(&self, bytes: usize) -> Result<AlignedBuf> {
        let mut align = self.0.alignment.memory;
        if self.is_direct() {
            // A block that lies in two pages is two pieces for the disk.
            align = align.max(page_bytes());
        }
        AlignedBuf::zeroed(bytes, align)
            .map_err(|error| Error::system("make a buffer for", Some(self.path()), error))
    }

    /// How long it is, in bytes; a block device has its size.
    ///
    /// # Errors
    /// What the system says.
    pub fn len(&self) -> Result<u64> {
        self.told("find the length of", self.0.file.len())
    }

    /// Whether it has no bytes.
    ///
    /// # Errors
    /// As [`DiskFile::len`].
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|bytes| bytes == 0)
    }

    /// Cuts it, or lengthens it with a hole.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.told("change the length of", self.0.file.set_len(bytes))
    }

    /// Asks the system to hold no more of it in memory than has not been written yet.
    ///
    /// # Platform
    /// Linux: `posix_fadvise(POSIX_FADV_DONTNEED)`. Elsewhere nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget_cache(&self) -> Result<()> {
        self.told("drop the cache of", self.0.file.forget_cache())
    }

    /// How many bytes of that range are in memory. `None`: that cannot be known.
    ///
    /// # Platform
    /// Linux 6.5 and later: `cachestat`, for who may write to the file or owns it. Elsewhere `None`.
    #[must_use]
    pub fn cached_bytes(&self, offset: u64, bytes: u64) -> Option<u64> {
        self.0.file.cached_bytes(offset, bytes)
    }

    /// Whether a sync of it has failed. Writes and syncs are refused from then on.
    ///
    /// The kernel reports a failed sync once. What could not be written is gone from memory afterwards, and
    /// the next sync succeeds without it: so a failure is never tried again. Read back what you need, and
    /// write it to another file.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.0.poisoned.load(Ordering::Acquire)
    }

    pub(crate) fn poison(&self) {
        self.0.poisoned.store(true, Ordering::Release);
    }

    /// What decides how the system reads and writes it; found out when it is first asked for.
    pub(crate) fn facts(&self) -> &Facts {
        self.0.facts.get_or_init(|| self.0.file.facts().unwrap_or_default())
    }

    pub(crate) fn os(&self) -> &file::File {
        &self.0.file
    }

    fn told<T>(&self, doing: &'static str, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|error| Error::system(doing, Some(self.path()), error))
    }
}
