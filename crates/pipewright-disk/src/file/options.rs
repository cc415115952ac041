//! How a file is opened.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use pipewright_os::disk::file::{self, Access, Alignment, SyncMode};

use super::{DiskFile, Inner};
use crate::{Error, ErrorKind, Result};

/// How a file is to be opened. Nothing is set in the beginning.
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
    /// It can be read.
    pub fn read(mut self, yes: bool) -> FileOptions {
        self.options.read = yes;
        self
    }

    /// It can be written to.
    pub fn write(mut self, yes: bool) -> FileOptions {
        self.options.write = yes;
        self
    }

    /// It is made where it is not there.
    pub fn create(mut self, yes: bool) -> FileOptions {
        self.options.create = yes;
        self
    }

    /// It is made, and it is an error where it is there.
    pub fn create_new(mut self, yes: bool) -> FileOptions {
        self.options.create_new = yes;
        self
    }

    /// It is emptied.
    pub fn truncate(mut self, yes: bool) -> FileOptions {
        self.options.truncate = yes;
        self
    }

    /// Whatever is written goes to its end, wherever the operation says. Operations that are under way at
    /// once arrive in any order, each in one piece.
    pub fn append(mut self, yes: bool) -> FileOptions {
        self.options.append = yes;
        self
    }

    /// Reads and writes bypass the cache of the system. Buffers, offsets and lengths then have to be
    /// [aligned](DiskFile::alignment).
    ///
    /// # Platform
    /// Linux: `O_DIRECT`. Some filesystems take it and use the cache all the same (`pipewright disk` tells).
    /// macOS: `F_NOCACHE`. Windows: `FILE_FLAG_NO_BUFFERING`.
    pub fn direct(mut self, yes: bool) -> FileOptions {
        self.options.direct = yes;
        self
    }

    /// The file is given room for that many bytes when it is opened, and is at least that long.
    ///
    /// A write into room that is there already can be asynchronous where one that has to find room cannot.
    ///
    /// # Platform
    /// As [`Operation::preallocate`](crate::Operation::preallocate).
    pub fn preallocate(mut self, bytes: u64) -> FileOptions {
        self.preallocate = Some(bytes);
        self
    }

    /// Room that the file is given ([`preallocate`](FileOptions::preallocate)) counts as written: whoever can
    /// read the file reads what the disk held there before, **parts of other people's deleted files among it**.
    ///
    /// Windows writes zeros, inside the call, up to wherever a write begins beyond what was written before; so
    /// a file that is not written from its beginning to its end is written synchronously, room or no room.
    /// This does away with that. Ask for it where nobody reads the file who must not see such things, and
    /// overwrite all of it.
    ///
    /// # Platform
    /// Windows: `SetFileValidData`, which takes the right `SeManageVolumePrivilege` (an administrator's). This
    /// process has it turned on while the file is opened, and during that call. Without it a preallocation is
    /// [`PermissionDenied`](ErrorKind::PermissionDenied), and the file is as long as asked for. Elsewhere
    /// nothing: room reads as zeros without being written to.
    #[doc(alias = "SetFileValidData")]
    pub fn expose_old_disk_contents(mut self, yes: bool) -> FileOptions {
        self.options.expose_old_disk_contents = yes;
        self
    }

    /// In which order it will be read: whether the system reads ahead.
    ///
    /// # Platform
    /// Linux: `posix_fadvise`. macOS: `F_RDAHEAD`. Windows: `FILE_FLAG_SEQUENTIAL_SCAN`,
    /// `FILE_FLAG_RANDOM_ACCESS`.
    pub fn access(mut self, access: Access) -> FileOptions {
        self.options.access = access;
        self
    }

    /// Whether each write waits until the disk has it.
    ///
    /// # Platform
    /// Unix: `O_DSYNC`, `O_SYNC`. Windows: `FILE_FLAG_WRITE_THROUGH`.
    pub fn sync(mut self, mode: SyncMode) -> FileOptions {
        self.options.sync = mode;
        self
    }

    /// Opens it. No child inherits it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] and the like; [`ErrorKind::Unsupported`] where the filesystem refuses direct
    /// I/O or has no room to give beforehand; [`ErrorKind::NotSeekable`] for a pipe, a socket, a terminal;
    /// [`ErrorKind::NotOpenedFor`] where room is asked for and nothing can be written.
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
            let told = file.alignment();
            told.map_err(|error| Error::system("find the alignment of", Some(path), error))?
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
