//! `memfd_create`, and seals.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags};
use rustix::process::{Resource, getrlimit};

use super::call_error::in_call;
pub(super) use super::mapping::Mapping;
use crate::base::handle::Handle;
use crate::base::test_hooks::{Forced, is_forced};

/// The seals of an object. It cannot shrink, so that no access faults beyond its end. It cannot grow or be filled
/// behind its end, so that no process is charged for that. It cannot be mapped for writing again, written to, or given
/// holes. The seals cannot be changed.
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

pub(super) fn create(size: usize, prefault: bool) -> io::Result<(Mapping, Handle)> {
    let length = size as u64;
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < length) {
        // The kernel would also end this process with SIGXFSZ.
        let message = "the shared memory is larger than the file size limit (RLIMIT_FSIZE)";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    let fd = memory()?;
    rustix::fs::ftruncate(&fd, length).map_err(in_call("ftruncate"))?;
    let mapping = Mapping::of(&fd, size, ProtFlags::READ | ProtFlags::WRITE)?;
    // After our own mapping, which must be writable, and before anything that takes time: until then, a
    // process that may inspect this one can open the object through `/proc` and map it for writing.
    rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(in_call("fcntl(F_ADD_SEALS)"))?;
    // Allocate every page before any is touched: a page that cannot be allocated then would raise SIGBUS and
    // end this process.
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, length).map_err(in_call("fallocate"))?;
    settle(&mapping, prefault.then_some(Advice::LinuxPopulateWrite))?;
    Ok((mapping, Handle::from(fd)))
}

pub(super) fn open(handle: &Handle, size: usize, prefault: bool) -> io::Result<Mapping> {
    let seals = rustix::fs::fcntl_get_seals(handle)
        .map_err(|_| wrong("it is not a sealable memory object"))?;
    if !seals.contains(SEALS) {
        return Err(wrong("it is not sealed"));
    }
    let stat = rustix::fs::fstat(handle)?;
    if u64::try_from(stat.st_size).ok() != Some(size as u64) {
        return Err(wrong("its size is not the announced one"));
    }
    // Pages behind the end are counted too, and could hide missing ones. Because of the seals, no others can be
    // added.
    rustix::fs::ftruncate(handle, size as u64)
        .map_err(|_| wrong("the pages behind its end cannot be removed"))?;
    let stat = rustix::fs::fstat(handle)?;
    // A missing page would be allocated when we read it, at our cost, or not at all.
    if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < size as u64 {
        return Err(wrong("it has holes"));
    }
    let mapping = Mapping::of(handle.as_fd(), size, ProtFlags::READ)?;
    settle(&mapping, prefault.then_some(Advice::LinuxPopulateRead))?;
    Ok(mapping)
}

fn memory() -> io::Result<OwnedFd> {
    if is_forced(Forced::NoMemfd) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Without the flag the kernel writes a warning to its log, or refuses (vm.memfd_noexec). Before 6.3 the
    // flag does not exist.
    let made = match rustix::fs::memfd_create(c"pipewright", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(c"pipewright", flags),
        made => made,
    };
    made.map_err(in_call("memfd_create"))
}

fn settle(mapping: &Mapping, populate: Option<Advice>) -> io::Result<()> {
    // A child forked by other code of this program gets no mapping: it could otherwise read and write the data
    // of this connection.
    mapping.advise(Advice::LinuxDontFork).map_err(in_call("madvise"))?;
    if let Some(populate) = populate {
        // Ignored: before Linux 5.14 the advice does not exist, and pages are mapped when they are touched.
        let _ = mapping.advise(populate);
    }
    Ok(())
}

fn wrong(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("shared memory was refused: {message}"))
}
