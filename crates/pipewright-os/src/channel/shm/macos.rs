//! `shm_open` with a name that is removed at once.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use rustix::fs::Mode;
use rustix::io::{Errno, FdFlags};
use rustix::mm::ProtFlags;
use rustix::shm::{self, OFlags};

use super::call_error::in_call;
pub(super) use super::mapping::Mapping;
use super::rounded::has_size;
use crate::base::handle::Handle;

pub(super) fn create(size: usize, _: bool) -> io::Result<(Mapping, Handle)> {
    let (writable, readable) = memory()?;
    // This works only once per object, as intended.
    rustix::fs::ftruncate(&writable, size as u64).map_err(in_call("ftruncate"))?;
    let mapping = Mapping::of(&writable, size, ProtFlags::READ | ProtFlags::WRITE)?;
    Ok((mapping, Handle::from(readable)))
}

pub(super) fn open(handle: &Handle, size: usize, _: bool) -> io::Result<Mapping> {
    let stat = rustix::fs::fstat(handle)?;
    if !u64::try_from(stat.st_size).is_ok_and(|found| has_size(found, size as u64)) {
        let message = "shared memory was refused: its size is not the announced one";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Mapping::of(handle.as_fd(), size, ProtFlags::READ)
}

/// Opens the object for writing and for reading. Between these two calls it has a name, which may have at most
/// 31 characters.
fn memory() -> io::Result<(OwnedFd, OwnedFd)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let rights = Mode::RUSR | Mode::WUSR;
    for _ in 0..8 {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanos = now.map_or(0, |now| now.subsec_nanos());
        let name = format!("/pw{:x}.{count:x}.{nanos:x}", process::id());
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let writable = match shm::open(name.as_str(), new, rights) {
            Ok(fd) => fd,
            Err(Errno::EXIST) => continue,
            Err(error) => return Err(in_call("shm_open")(error)),
        };
        let readable = shm::open(name.as_str(), OFlags::RDONLY, Mode::empty());
        shm::unlink(name.as_str())?;
        let readable = readable.map_err(in_call("shm_open"))?;
        for fd in [&writable, &readable] {
            rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC)?;
        }
        return Ok((writable, readable));
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
