//! `memfd_create`, and seals.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags};
use rustix::process::{Resource, getrlimit};

use super::call_error::in_call;
pub(super) use super::mapping::Mapping;
use crate::base::fallback;
use crate::base::handle::Handle;

/// Never smaller: nobody faults beyond its end. Never larger, nor filled behind its end: nobody is charged
/// for it. Not to be mapped for writing any more, nor written to, nor to be given holes. And so it stays.
const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

pub(super) fn create(size: usize, prefault: bool) -> io::Result<(Mapping, Handle)> {
    let length = size as u64;
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < length) {
        // The kernel would not only say no, but end us (SIGXFSZ).
        let words = "the shared memory is larger than the file size limit (RLIMIT_FSIZE)";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
    }
    let fd = memory()?;
    rustix::fs::ftruncate(&fd, length).map_err(in_call("ftruncate"))?;
    let mapping = Mapping::of(&fd, size, ProtFlags::READ | ProtFlags::WRITE)?;
    // After that mapping, which is to be the one that can be written, and before anything that takes time: a
    // process that may look into this one can open it through `/proc`, and map it for writing until then.
    rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(in_call("fcntl(F_ADD_SEALS)"))?;
    // Every page, before any is touched: one that cannot be had then is SIGBUS, and the end of us.
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
    // Pages behind its end are counted as well, and could stand in for some that are not there. Nobody can
    // add others any more, because of the seals.
    rustix::fs::ftruncate(handle, size as u64)
        .map_err(|_| wrong("the pages behind its end cannot be removed"))?;
    let stat = rustix::fs::fstat(handle)?;
    // A page that is not there would be made when we read it, at our cost, or not at all.
    if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < size as u64 {
        return Err(wrong("it has holes"));
    }
    let mapping = Mapping::of(handle.as_fd(), size, ProtFlags::READ)?;
    settle(&mapping, prefault.then_some(Advice::LinuxPopulateRead))?;
    Ok(mapping)
}

fn memory() -> io::Result<OwnedFd> {
    if fallback::NO_MEMFD {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Without the flag the kernel complains in its log, or refuses (vm.memfd_noexec); before 6.3
    // there is no such flag.
    let made = match rustix::fs::memfd_create(c"pipewright", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(c"pipewright", flags),
        made => made,
    };
    made.map_err(in_call("memfd_create"))
}

fn settle(mapping: &Mapping, populate: Option<Advice>) -> io::Result<()> {
    // A child that is forked by other code of this program gets no mapping: it could go on reading
    // and writing what is between us and the peer.
    mapping.advise(Advice::LinuxDontFork).map_err(in_call("madvise"))?;
    if let Some(populate) = populate {
        // Ignored: before Linux 5.14 there is no such advice, and pages are mapped when touched.
        let _ = mapping.advise(populate);
    }
    Ok(())
}

fn wrong(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("shared memory was refused: {words}"))
}
