//! Pipes whose bytes are tokens, as in the jobserver protocol of GNU make.
//!
//! Many processes share such a pipe: each takes a byte before it starts a job and puts the same byte back after it.

use std::path::Path;
use std::{fmt, io};

use crate::base::handle::Handle;
use crate::base::wake::{EventSource, WaitEvent};

/// Both ends of a pipe whose bytes are tokens.
///
/// No call blocks, and none changes the open file of another process: see [`open`](Self::open) and
/// [`from_numbers`](Self::from_numbers).
///
/// As an event, it has happened while a token can be taken.
///
/// # Platform
/// Windows: there are no such pipes. Every function that makes one fails (`Unsupported`).
pub struct TokenPipe(imp::Ends);

impl TokenPipe {
    /// Opens a FIFO by its name.
    ///
    /// # Platform
    /// Unix: `open(O_RDWR | O_NONBLOCK)`. The open file is ours alone, so its mode affects no other process.
    ///
    /// # Errors
    /// There is no such file, it is not a FIFO (`InvalidInput`), or it cannot be opened. Windows: `Unsupported`.
    pub fn open(path: &Path) -> io::Result<TokenPipe> {
        imp::open(path).map(TokenPipe)
    }

    /// Duplicates the ends of a pipe that this process has under these numbers: handles that a parent passed on.
    ///
    /// # Platform
    /// Linux: a take is a read as [`PipeReader::try_read_spare`](crate::base::pipe::PipeReader::try_read_spare) makes
    /// it, which leaves the blocking mode of the shared open file alone. macOS: such a read follows a `poll`, and
    /// blocks if another process takes the last token in between.
    ///
    /// # Errors
    /// A number is not open (`EBADF`), not the right end of a pipe, or (Linux) the two are not ends of the same pipe
    /// (`InvalidInput`). Windows: `Unsupported`.
    pub fn from_numbers(read: i32, write: i32) -> io::Result<TokenPipe> {
        imp::from_numbers(read, write).map(TokenPipe)
    }

    /// Returns true if a parent passed both handles on: exec closes neither of them. What this process has opened
    /// itself may have the same numbers, but exec closes it.
    ///
    /// # Errors
    /// A number is not open (`EBADF`). Windows: `Unsupported`.
    pub fn are_inherited(read: i32, write: i32) -> io::Result<bool> {
        imp::are_inherited(read, write)
    }

    /// Takes a token, if there is one.
    ///
    /// # Errors
    /// The errors of `read`; `UnexpectedEof` if nothing can ever write a token again.
    pub fn try_take(&self) -> io::Result<Option<u8>> {
        imp::try_take(&self.0)
    }

    /// Puts a token back.
    ///
    /// # Errors
    /// The errors of `write`; `WouldBlock` if the pipe is full.
    pub fn put(&self, token: u8) -> io::Result<()> {
        imp::put(&self.0, token)
    }

    /// Returns the number of tokens that can be taken now.
    ///
    /// # Errors
    /// The errors of `ioctl(FIONREAD)`.
    pub fn count(&self) -> io::Result<usize> {
        imp::count(&self.0)
    }
}

impl WaitEvent for TokenPipe {
    fn source(&self) -> EventSource<'_> {
        imp::source(&self.0)
    }

    fn has_happened(&self) -> bool {
        self.count().map_or(true, |count| count > 0)
    }
}

impl fmt::Debug for TokenPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenPipe").field(&self.count().ok()).finish()
    }
}

/// A new FIFO in a folder of its own, which only this user can open.
///
/// # Platform
/// Unix: `mkdir` (0700), `mkfifo` (0600), and a lock on the folder (`flock`).
///
/// # Drop
/// Removes the FIFO and the folder. If this process is killed, they stay until the next [`create`](Self::create) with
/// the same folder and prefix: that removes each folder of this user which no living process has locked.
///
/// ```
/// # use pipewright_os::base::token_pipe::{NamedFifo, TokenPipe};
/// # if cfg!(windows) { return Ok(()); }
/// let fifo = NamedFifo::create(&std::env::temp_dir(), "example-")?;
/// let tokens = TokenPipe::open(fifo.path())?;
/// assert_eq!(tokens.try_take()?, None);
/// tokens.put(b'+')?;
/// assert_eq!(tokens.try_take()?, Some(b'+'));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct NamedFifo(imp::Named);

impl NamedFifo {
    /// Creates a FIFO in a new folder in `parent`, whose name begins with `prefix`.
    ///
    /// # Errors
    /// The folder, the FIFO or the lock cannot be made. Windows: `Unsupported`.
    pub fn create(parent: &Path, prefix: &str) -> io::Result<NamedFifo> {
        imp::create(parent, prefix).map(NamedFifo)
    }

    /// Returns the path of the FIFO.
    #[must_use]
    pub fn path(&self) -> &Path {
        imp::path(&self.0)
    }

    /// Opens an end for reading and one for writing, both in blocking mode, which children can inherit.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn ends(&self) -> io::Result<(Handle, Handle)> {
        imp::ends(&self.0)
    }
}

impl fmt::Debug for NamedFifo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedFifo").field(&self.path()).finish()
    }
}

// Ends of a FIFO that has a name, or of a pipe that a parent passed on.
#[cfg(unix)]
mod imp {
    use std::ffi::CString;
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::DirBuilderExt;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};

    use crate::base::generation::Generation;
    use crate::base::handle::{Handle, is_close_on_exec};
    use crate::base::pipe::{NonblockMethod, PipeReader, PipeWriter};
    use crate::base::wake::EventSource;

    pub(super) struct Ends {
        reader: PipeReader,
        writer: PipeWriter,
    }

    pub(super) fn open(path: &Path) -> io::Result<Ends> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let end = rustix::fs::open(path, flags, Mode::empty())?;
        if !is_fifo(&end)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a FIFO"));
        }
        let copy = end.try_clone()?;
        Ok(Ends {
            reader: PipeReader::with_method(end, NonblockMethod::Plain),
            writer: PipeWriter::with_method(copy, NonblockMethod::Plain),
        })
    }

    pub(super) fn from_numbers(read: i32, write: i32) -> io::Result<Ends> {
        let reader = end_of_number(read, OFlags::RDONLY)?;
        let writer = end_of_number(write, OFlags::WRONLY)?;
        if !is_same_pipe(&reader, &writer)? {
            let message = format!("handles {read} and {write} are ends of different pipes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Ends {
            reader: PipeReader::with_method(reader, NonblockMethod::Detect),
            writer: PipeWriter::with_method(writer, NonblockMethod::Detect),
        })
    }

    pub(super) fn are_inherited(read: i32, write: i32) -> io::Result<bool> {
        Ok(!is_close_on_exec(read)? && !is_close_on_exec(write)?)
    }

    fn end_of_number(number: i32, access: OFlags) -> io::Result<OwnedFd> {
        let end = OwnedFd::from(Handle::copy_of_number(number)?);
        let mode = rustix::fs::fcntl_getfl(&end)? & OFlags::RWMODE;
        if is_fifo(&end)? && (mode == access || mode == OFlags::RDWR) {
            return Ok(end);
        }
        let purpose = if access == OFlags::RDONLY { "reading" } else { "writing" };
        let message = format!("handle {number} is not the {purpose} end of a pipe");
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    fn is_fifo(end: &OwnedFd) -> io::Result<bool> {
        Ok(FileType::from_raw_mode(rustix::fs::fstat(end)?.st_mode) == FileType::Fifo)
    }

    /// Returns true if both descriptors are ends of one pipe: a token is put back where it was taken.
    #[cfg(target_os = "linux")]
    fn is_same_pipe(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
        let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
        Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
    }

    /// Returns true: the ends of a pipe do not have the same number there.
    #[cfg(not(target_os = "linux"))]
    fn is_same_pipe(_: &OwnedFd, _: &OwnedFd) -> io::Result<bool> {
        Ok(true)
    }

    pub(super) fn try_take(ends: &Ends) -> io::Result<Option<u8>> {
        let mut token = [0];
        match ends.reader.try_read(&mut token) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(token.first().copied()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn put(ends: &Ends, token: u8) -> io::Result<()> {
        ends.writer.try_write(&[token]).map(drop)
    }

    pub(super) fn count(ends: &Ends) -> io::Result<usize> {
        ends.reader.available()
    }

    pub(super) fn source(ends: &Ends) -> EventSource<'_> {
        EventSource::Readable(ends.reader.fd_for_wait())
    }

    const FIFO_NAME: &str = "fifo";

    /// The number of names that are tried. Another process may remove a folder between its creation and its lock.
    const MOST_TRIES: u32 = 64;

    /// The number of entries in the parent that are looked at for folders of killed processes.
    const MOST_LOOKED_AT: usize = 10_000;

    pub(super) struct Named {
        fifo: PathBuf,
        /// The folder, open and locked.
        folder: OwnedFd,
        path: PathBuf,
        made_in: Generation,
    }

    pub(super) fn create(parent: &Path, prefix: &str) -> io::Result<Named> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        remove_abandoned(parent, prefix);
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..MOST_TRIES {
            let number = CREATED.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{prefix}{}-{number}", std::process::id()));
            match create_at(&path) {
                Ok(named) => return Ok(named),
                Err(error) if is_taken(&error) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Returns true if another process has the name, or has removed our folder before we locked it.
    fn is_taken(error: &io::Error) -> bool {
        use io::ErrorKind::{AlreadyExists, NotFound, WouldBlock};
        matches!(error.kind(), AlreadyExists | NotFound | WouldBlock)
    }

    fn create_at(path: &Path) -> io::Result<Named> {
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
        let locked = lock(path).inspect_err(|_| {
            // Ignored: another process that removes the folder is done first.
            let _ = std::fs::remove_dir(path);
        });
        let folder = locked?;
        // From here on the drop removes the folder.
        let made_in = Generation::current();
        let named = Named { fifo: path.join(FIFO_NAME), folder, path: path.to_owned(), made_in };
        make_fifo(&named.fifo)?;
        Ok(named)
    }

    fn lock(path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
        Ok(folder)
    }

    fn make_fifo(path: &Path) -> io::Result<()> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a C string that outlives the call, and an integer.
        match unsafe { libc::mkfifo(name.as_ptr(), 0o600) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Removes the folders of processes that were killed. Errors are ignored: the folders are empty but for a FIFO.
    fn remove_abandoned(parent: &Path, prefix: &str) {
        let Ok(entries) = std::fs::read_dir(parent) else { return };
        let user = rustix::process::geteuid().as_raw();
        for entry in entries.take(MOST_LOOKED_AT).flatten() {
            if !entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
                continue;
            }
            let path = entry.path();
            let Ok(folder) = lock(&path) else { continue };
            if rustix::fs::fstat(&folder).is_ok_and(|stat| stat.st_uid == user) {
                remove(&folder, &path);
            }
        }
    }

    /// Removes a folder that is locked. An error leaves an empty folder or FIFO behind, and nothing can be done about
    /// it.
    fn remove(folder: &OwnedFd, path: &Path) {
        let _ = rustix::fs::unlinkat(folder, FIFO_NAME, AtFlags::empty());
        let _ = std::fs::remove_dir(path);
    }

    impl Drop for Named {
        fn drop(&mut self) {
            if self.made_in.is_current() {
                remove(&self.folder, &self.path);
            }
        }
    }

    pub(super) fn path(named: &Named) -> &Path {
        &named.fifo
    }

    pub(super) fn ends(named: &Named) -> io::Result<(Handle, Handle)> {
        let open = |access| -> io::Result<OwnedFd> {
            // Without O_NONBLOCK it would wait for the other end.
            let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
            let end = rustix::fs::open(&named.fifo, flags, Mode::empty())?;
            rustix::fs::fcntl_setfl(end.as_fd(), OFlags::empty())?;
            Ok(end)
        };
        // In this order: an end for writing needs a reader.
        let reader = open(OFlags::RDONLY)?;
        let writer = open(OFlags::WRONLY)?;
        Ok((Handle::from(reader), Handle::from(writer)))
    }
}

// Systems without FIFOs: nothing can be made, so there is nothing to call.
#[cfg(not(unix))]
mod imp {
    use std::convert::Infallible;
    use std::io;
    use std::path::Path;

    use crate::base::handle::Handle;
    use crate::base::wake::EventSource;

    pub(super) type Ends = Infallible;
    pub(super) type Named = Infallible;

    fn unsupported() -> io::Error {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "this system has no pipes that are shared by name or number",
        )
    }

    pub(super) fn open(_: &Path) -> io::Result<Ends> {
        Err(unsupported())
    }

    pub(super) fn from_numbers(_: i32, _: i32) -> io::Result<Ends> {
        Err(unsupported())
    }

    pub(super) fn are_inherited(_: i32, _: i32) -> io::Result<bool> {
        Err(unsupported())
    }

    pub(super) fn try_take(ends: &Ends) -> io::Result<Option<u8>> {
        match *ends {}
    }

    pub(super) fn put(ends: &Ends, _: u8) -> io::Result<()> {
        match *ends {}
    }

    pub(super) fn count(ends: &Ends) -> io::Result<usize> {
        match *ends {}
    }

    pub(super) fn source(ends: &Ends) -> EventSource<'_> {
        match *ends {}
    }

    pub(super) fn create(_: &Path, _: &str) -> io::Result<Named> {
        Err(unsupported())
    }

    pub(super) fn path(named: &Named) -> &Path {
        match *named {}
    }

    pub(super) fn ends(named: &Named) -> io::Result<(Handle, Handle)> {
        match *named {}
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Returns a prefix that no other test has.
    fn prefix(name: &str) -> String {
        format!("pipewright-test-{}-{name}-", std::process::id())
    }

    #[test]
    fn a_folder_that_a_killed_process_left_is_removed_by_the_next() {
        let (parent, prefix) = (std::env::temp_dir(), prefix("left"));
        let used = NamedFifo::create(&parent, &prefix).unwrap();
        // A killed process leaves a folder with a FIFO, and its lock is gone.
        let left = parent.join(format!("{prefix}1-0"));
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("fifo"), "").unwrap();
        // Other names are not ours, and neither is a folder with something else in it.
        let other = parent.join(format!("other-{prefix}"));
        let full = parent.join(format!("{prefix}full"));
        std::fs::create_dir(&other).unwrap();
        std::fs::create_dir(&full).unwrap();
        std::fs::write(full.join("precious"), "").unwrap();
        let next = NamedFifo::create(&parent, &prefix).unwrap();
        assert!(!left.exists());
        assert!(used.path().exists() && next.path().exists());
        assert!(other.exists() && full.join("precious").exists());
        std::fs::remove_dir(&other).unwrap();
        std::fs::remove_dir_all(&full).unwrap();
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_fork_that_drops_its_copy_removes_no_folder_of_its_parent() {
        let mut fifo = Some(NamedFifo::create(&std::env::temp_dir(), &prefix("fork")).unwrap());
        let dropped = crate::base::generation::tests::in_a_fork(|| {
            drop(fifo.take());
            true
        });
        assert!(dropped && fifo.unwrap().path().exists());
    }

    #[test]
    fn a_name_that_is_taken_is_not_used() {
        let (parent, prefix) = (std::env::temp_dir(), prefix("taken"));
        // A link to a folder of somebody else must not be followed.
        let links = (0..4).map(|number| {
            let link = parent.join(format!("{prefix}{}-{number}", std::process::id()));
            std::os::unix::fs::symlink("/", &link).unwrap();
            link
        });
        let links: Vec<_> = links.collect();
        let fifo = NamedFifo::create(&parent, &prefix).unwrap();
        assert!(fifo.path().starts_with(&parent));
        assert!(links.iter().all(|link| link.is_symlink() && !fifo.path().starts_with(link)));
        links.iter().for_each(|link| std::fs::remove_file(link).unwrap());
    }

    #[test]
    fn ends_for_children_are_in_blocking_mode() {
        let fifo = NamedFifo::create(&std::env::temp_dir(), &prefix("ends")).unwrap();
        let tokens = TokenPipe::open(fifo.path()).unwrap();
        let (reader, writer) = fifo.ends().unwrap();
        for end in [&reader, &writer] {
            let flags = rustix::fs::fcntl_getfl(end).unwrap();
            assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{flags:?}");
        }
        tokens.put(b'+').unwrap();
        // The ends find the same pipe after its name is gone.
        drop(fifo);
        let ends = TokenPipe::from_numbers(
            reader.number().try_into().unwrap(),
            writer.number().try_into().unwrap(),
        );
        assert_eq!(ends.unwrap().try_take().unwrap(), Some(b'+'));
        assert_eq!(tokens.try_take().unwrap(), None);
    }

    #[test]
    fn ends_that_this_process_has_opened_are_not_inherited() {
        let fifo = NamedFifo::create(&std::env::temp_dir(), &prefix("own")).unwrap();
        let (reader, writer) = fifo.ends().unwrap();
        let [read, write] = [&reader, &writer].map(|end| i32::try_from(end.number()).unwrap());
        assert!(!TokenPipe::are_inherited(read, write).unwrap());
        assert!(TokenPipe::are_inherited(0, 1).unwrap());
        assert!(TokenPipe::are_inherited(0, i32::MAX).is_err());
    }
}
