//! `O_DIRECT`, `statx`, `preadv2`, `fallocate`, `cachestat`.

mod btrfs;
mod extents;
mod nowait;

use std::fs;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{
    Advice, AtFlags, FallocateFlags, IFlags, SeekFrom, StatxAttributes, StatxFlags, fadvise,
    fallocate, fstatfs, ioctl_getflags, ioctl_setflags, seek, statx,
};
use rustix::io::{Errno, ReadWriteFlags};

pub(super) use btrfs::write_room;
pub(super) use extents::extents;
pub(super) use nowait::{nowait_reads, nowait_writes};

use super::unix::is_character_device;
pub(super) use super::unix::{
    is_same, is_same_open, read_at, require_seekable, sync_all, sync_data, write_at,
};
use super::{Access, Alignment, Facts, File, Filesystem, OpenOptions};
use crate::base::memory::AlignedBuf;

pub(super) type Open = fs::File;

pub(super) fn open(path: &Path, options: &OpenOptions) -> io::Result<fs::File> {
    let direct = if options.direct { libc::O_DIRECT } else { 0 };
    let file = super::unix::open(path, options, direct)?;
    let advice = match options.access {
        Access::Normal => return Ok(file),
        Access::Sequential => Advice::Sequential,
        Access::Random => Advice::Random,
    };
    // Ignored: the hint affects no result, and some devices refuse it.
    let _ = fadvise(&file, 0, None, advice);
    Ok(file)
}

pub(super) fn read_cached_at(
    file: &fs::File,
    to: &mut [u8],
    offset: u64,
) -> io::Result<Option<usize>> {
    let mut to = [IoSliceMut::new(to)];
    match rustix::io::preadv2(file, &mut to, offset, ReadWriteFlags::NOWAIT) {
        Ok(bytes) => Ok(Some(bytes)),
        // Not in memory; or the filesystem, the kernel or a seccomp filter does not accept the flag or the
        // call.
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn allocate(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::empty(), offset, bytes)?)
}

pub(super) fn len(file: &fs::File) -> io::Result<u64> {
    let found = file.metadata()?;
    if found.file_type().is_block_device() {
        // The metadata of a device report 0. Moving the file position is harmless: every call here names its
        // offset.
        return Ok(seek(file, SeekFrom::End(0))?);
    }
    Ok(found.len())
}

pub(super) fn alignment(file: &fs::File) -> io::Result<Alignment> {
    let stat = match statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) => stat,
        Err(Errno::NOSYS | Errno::PERM) => return Ok(Alignment::ASSUMED),
        Err(error) => return Err(error.into()),
    };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(Alignment::ASSUMED);
    }
    let (memory, offset) = (stat.stx_dio_mem_align as usize, stat.stx_dio_offset_align as usize);
    if memory == 0 || offset == 0 {
        // statx(2): direct I/O is not supported on this file. If it was opened with O_DIRECT anyway, the
        // kernel silently uses the cache.
        return Ok(Alignment { direct: Some(false), reported: true, ..Alignment::ASSUMED });
    }
    Ok(Alignment { memory, offset, reported: true, direct: Some(true) })
}

pub(super) fn facts(file: &File) -> io::Result<Facts> {
    let attributes = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).ok();
    let has = |attribute: StatxAttributes| {
        let stat = attributes.as_ref()?;
        stat.stx_attributes_mask
            .contains(attribute)
            .then(|| stat.stx_attributes.contains(attribute))
    };
    let flags = ioctl_getflags(file).ok();
    Ok(Facts {
        length: file.len()?,
        filesystem: filesystem(&file.0),
        compressed: has(StatxAttributes::COMPRESSED)
            .or_else(|| flags.map(|flags| flags.contains(IFlags::COMPRESSED))),
        encrypted: has(StatxAttributes::ENCRYPTED),
        no_copy_on_write: flags.map(|flags| flags.contains(IFlags::NOCOW)),
        nowait: nowait(file),
        pollable: pollable(file),
        device_queue: device_queue(&file.0),
    })
}

fn filesystem(file: &fs::File) -> Option<Filesystem> {
    if file.metadata().ok()?.file_type().is_block_device() {
        // The filesystem of the device's name is irrelevant.
        return Some(Filesystem::Device);
    }
    fstatfs(file).ok().map(|stat| Filesystem::of_number(stat.f_type as u64))
}

/// The filesystems without a cache: the kernel itself answers each read and write.
const WITHOUT_CACHE: [u32; 7] = [
    libc::PROC_SUPER_MAGIC as u32,
    libc::SYSFS_MAGIC as u32,
    libc::CGROUP_SUPER_MAGIC as u32,
    libc::CGROUP2_SUPER_MAGIC as u32,
    libc::DEBUGFS_MAGIC as u32,
    libc::TRACEFS_MAGIC as u32,
    libc::SECURITYFS_MAGIC as u32,
];

pub(super) fn may_have_unwritten_data(file: &fs::File) -> bool {
    let answers_itself = |stat: rustix::fs::StatFs| WITHOUT_CACHE.contains(&(stat.f_type as u32));
    !is_character_device(file) && !fstatfs(file).is_ok_and(answers_itself)
}

/// Returns true if the filesystem supports `RWF_NOWAIT`. A read past the end loads nothing into memory, but is
/// refused if the flag is not supported.
fn nowait(file: &File) -> Option<bool> {
    let alignment = file.alignment().ok()?;
    let mut room = AlignedBuf::zeroed(alignment.offset, alignment.memory).ok()?;
    let past_end = file.len().ok()?.checked_next_multiple_of(alignment.offset as u64)?;
    let mut to = [IoSliceMut::new(&mut room)];
    match rustix::io::preadv2(file, &mut to, past_end, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(Errno::AGAIN) => Some(true),
        Err(Errno::OPNOTSUPP) => Some(false),
        Err(_) => None,
    }
}

/// Returns true if the file can be polled. An ordinary file cannot (epoll_ctl(2), EPERM).
fn pollable(file: &File) -> Option<bool> {
    use rustix::event::epoll;
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC).ok()?;
    let data = epoll::EventData::new_u64(0);
    match epoll::add(&watch, file, data, epoll::EventFlags::IN) {
        Ok(()) => Some(true),
        Err(Errno::PERM) => Some(false),
        Err(_) => None,
    }
}

fn device_queue(file: &fs::File) -> Option<u32> {
    let found = file.metadata().ok()?;
    let is_device = found.file_type().is_block_device();
    let device = if is_device { found.rdev() } else { found.dev() };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = format!("/sys/dev/block/{major}:{minor}");
    // A partition uses the queue of its disk, which is the parent folder.
    let read = |below: &str| fs::read_to_string(format!("{place}/{below}queue/nr_requests")).ok();
    read("").or_else(|| read("../"))?.trim().parse().ok()
}

/// `struct cachestat_range` and `struct cachestat` (cachestat(2)).
#[repr(C)]
struct Range {
    offset: u64,
    bytes: u64,
}

#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

const SYS_CACHESTAT: libc::c_long = 451;

pub(super) fn cached_bytes(file: &fs::File, offset: u64, bytes: u64) -> Option<u64> {
    let found = cachestat(file, offset, bytes)?;
    Some((found.cached * crate::base::memory::page_bytes() as u64).min(bytes))
}

pub(super) fn unwritten_bytes(file: &fs::File, offset: u64, bytes: u64) -> Option<u64> {
    let found = cachestat(file, offset, bytes)?;
    Some(((found.dirty + found.writeback) * crate::base::memory::page_bytes() as u64).min(bytes))
}

fn cachestat(file: &fs::File, offset: u64, bytes: u64) -> Option<CacheStat> {
    let range = Range { offset, bytes };
    let mut found = CacheStat::default();
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: an open file, a range to read and a struct to fill in, both with the layout of the call.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd, &raw const range, &raw mut found, 0) };
    (result == 0).then_some(found)
}

pub(super) fn claim_disk(path: &Path) -> io::Result<fs::File> {
    fs::File::options().read(true).custom_flags(libc::O_EXCL).open(path)
}

pub(super) fn write_in_place(file: &fs::File) -> io::Result<()> {
    Ok(ioctl_setflags(file, ioctl_getflags(file)? | IFlags::NOCOW)?)
}

pub(super) fn forget_cache(file: &fs::File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

pub(super) fn next_hole(file: &fs::File, from: u64) -> Option<u64> {
    seek(file, SeekFrom::Hole(from)).ok()
}
