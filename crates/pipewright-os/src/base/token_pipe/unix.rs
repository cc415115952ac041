//! Ends of a FIFO that has a name, or of a pipe that a parent passed on.

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

/// Removes a folder that is locked. An error leaves an empty folder or FIFO behind, and nothing can be done about it.
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
