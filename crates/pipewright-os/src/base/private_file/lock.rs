//! Locks of files: one that only its owner can hold, and one that belongs to an open file and to whoever inherits it.

use std::fs::File;
use std::io;
use std::path::Path;

use super::{Facts, open_beside};

/// An exclusive lock that belongs to this process: a child or a fork that outlives it does not hold it. It ends with
/// the process.
///
/// # Platform
/// Unix: `fcntl(F_SETLK)` on the whole file, which also excludes a lock of SQLite on it, and a list of the files that
/// this process has locked, because such locks do not exclude each other within a process. Windows: `LockFileEx`.
///
/// # Drop
/// Unlocks. The file stays: if it were removed, two processes could hold locks of two files with one name.
#[derive(Debug)]
pub struct PrivateLock {
    /// Closed before its place in the list is free.
    _file: File,
    _place: imp::Place,
}

impl PrivateLock {
    /// Takes the lock of a file that belongs to `main`; creates the file if it is missing. `None`: another process has
    /// the lock, or this one has.
    ///
    /// # Errors
    /// The file cannot be opened, trusted or locked.
    ///
    /// ```
    /// # use pipewright_os::base::private_file::{Facts, PrivateLock, create_new};
    /// let path = std::env::temp_dir().join(format!("private-locked-{}", std::process::id()));
    /// let main = Facts::of_file(&create_new(&path)?)?;
    /// let lock = path.with_extension("lock");
    /// let first = PrivateLock::take(&lock, &main)?.unwrap();
    /// assert!(PrivateLock::take(&lock, &main)?.is_none());
    /// drop(first);
    /// assert!(PrivateLock::take(&lock, &main)?.is_some());
    /// # std::fs::remove_file(path)?;
    /// # std::fs::remove_file(lock)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take(path: &Path, main: &Facts) -> io::Result<Option<PrivateLock>> {
        let Some(free) = imp::Place::reserve(path)? else { return Ok(None) };
        let (file, _) = open_beside(path, main)?;
        // One of an older version may be readable by all.
        imp::make_private(&file);
        let Some(place) = free.fill(&file)? else { return Ok(None) };
        let is_locked = imp::try_lock(&file)?;
        Ok(is_locked.then_some(PrivateLock { _file: file, _place: place }))
    }
}

/// Takes the exclusive lock of an open file. Waits for it, or returns false if another open file has it.
///
/// The lock belongs to this open file: a process that inherits it holds the lock, too, and the kernel ends it when the
/// last of them has closed it or is dead.
///
/// # Platform
/// Unix: `flock`; some network filesystems ask for a file that is open for writing. Windows: `LockFileEx`, which
/// belongs to this process.
///
/// # Errors
/// The filesystem has no locks, or this file cannot be locked.
pub fn lock_open_file(file: &File, waits: bool) -> io::Result<bool> {
    imp::lock_open_file(file, waits)
}

#[cfg(unix)]
mod imp {
    use std::fs::{self, File, Metadata, Permissions};
    use std::io;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::path::Path;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use rustix::fs::{FlockOperation, fcntl_lock, flock};
    use rustix::io::Errno;

    use crate::base::generation::{Generation, PerProcess};

    type Id = (u64, u64);

    /// The files that this process has locked. To close any other descriptor of one would unlock it, so none is opened.
    static LOCKED: PerProcess<Mutex<Vec<Id>>> = PerProcess::new(|| Mutex::new(Vec::new()));

    fn list() -> MutexGuard<'static, Vec<Id>> {
        LOCKED.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(found: &Metadata) -> Id {
        (found.dev(), found.ino())
    }

    /// The list, until the file is in it.
    pub(super) struct Free(MutexGuard<'static, Vec<Id>>);

    /// The place of a locked file in the list.
    #[derive(Debug)]
    pub(super) struct Place(Id, Generation);

    impl Place {
        /// Returns `None` if this process has locked the file.
        pub(super) fn reserve(path: &Path) -> io::Result<Option<Free>> {
            let list = list();
            match fs::symlink_metadata(path) {
                Ok(found) if list.contains(&id(&found)) => Ok(None),
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(Some(Free(list))),
            }
        }
    }

    impl Free {
        pub(super) fn fill(mut self, file: &File) -> io::Result<Option<Place>> {
            let id = id(&file.metadata()?);
            if self.0.contains(&id) {
                // Somebody has moved a locked file to this name since it was looked at. The descriptor stays open with
                // the lock.
                if let Ok(copy) = file.try_clone() {
                    std::mem::forget(copy);
                }
                return Ok(None);
            }
            self.0.push(id);
            Ok(Some(Place(id, Generation::current())))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            // A fork has a list of its own.
            if self.1.is_current() {
                list().retain(|id| *id != self.0);
            }
        }
    }

    pub(super) fn try_lock(file: &File) -> io::Result<bool> {
        match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn lock_open_file(file: &File, waits: bool) -> io::Result<bool> {
        let operation = match waits {
            true => FlockOperation::LockExclusive,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        loop {
            match flock(file, operation) {
                Ok(()) => return Ok(true),
                Err(Errno::WOULDBLOCK) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn make_private(file: &File) {
        // Ignored: a filesystem may keep no rights, and another one may own it.
        let _ = file.set_permissions(Permissions::from_mode(0o600));
    }
}

#[cfg(windows)]
mod imp {
    use std::fs::File;
    use std::io;
    use std::os::windows::io::AsRawHandle as _;
    use std::path::Path;

    use windows_sys::Win32::Foundation::ERROR_LOCK_VIOLATION;
    use windows_sys::Win32::Storage::FileSystem::{
        LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
    };
    use windows_sys::Win32::System::IO::OVERLAPPED;

    pub(super) struct Free;

    /// Nothing: locks of two handles exclude each other.
    #[derive(Debug)]
    pub(super) struct Place;

    impl Place {
        pub(super) fn reserve(_: &Path) -> io::Result<Option<Free>> {
            Ok(Some(Free))
        }
    }

    impl Free {
        pub(super) fn fill(self, _: &File) -> io::Result<Option<Place>> {
            Ok(Some(Place))
        }
    }

    pub(super) fn try_lock(file: &File) -> io::Result<bool> {
        lock_open_file(file, false)
    }

    pub(super) fn lock_open_file(file: &File, waits: bool) -> io::Result<bool> {
        let fails = if waits { 0 } else { LOCKFILE_FAIL_IMMEDIATELY };
        let flags = LOCKFILE_EXCLUSIVE_LOCK | fails;
        let mut from_start = OVERLAPPED::default();
        // SAFETY: a live handle that is not opened for overlapped use, so that the structure is used during the call
        // only.
        let locked = unsafe {
            LockFileEx(file.as_raw_handle(), flags, 0, u32::MAX, u32::MAX, &raw mut from_start)
        };
        if locked != 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(code) if code == ERROR_LOCK_VIOLATION as i32 => Ok(false),
            _ => Err(error),
        }
    }

    pub(super) fn make_private(_: &File) {}
}
