//! Files on Linux: `O_DIRECT`, `statx`, `preadv2`, `fallocate`, `cachestat`, extents, and the metadata space of Btrfs.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{
    Advice, AtFlags, FallocateFlags, IFlags, SeekFrom, StatxAttributes, StatxFlags, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, fadvise, fallocate, fstatfs, futimens, ioctl_getflags,
    ioctl_setflags, seek, statx,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use rustix::time::{ClockId, clock_getres};

use super::unix::is_character_device;
use super::{Access, Alignment, Facts, File, Filesystem, NowaitReads, NowaitWrites, OpenOptions};
use crate::base::memory::AlignedBuf;

pub(super) use super::unix::{
    is_same, is_same_open, read_at, require_seekable, sync_all, sync_data, write_at,
};

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

// The extents of a file on its disk: `FS_IOC_FIEMAP` (Documentation/filesystems/fiemap.rst).

/// The head of `struct fiemap`, without its array of extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;

pub(super) fn extents(file: &fs::File, offset: u64, bytes: u64) -> Option<usize> {
    // Without an array, the extents are only counted.
    let mut requested = Fiemap {
        start: offset,
        length: bytes,
        flags: 0,
        mapped_extents: 0,
        extent_count: 0,
        reserved: 0,
    };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: an open file and a live struct with the layout of the call, without an array for the kernel to
    // fill.
    let result = unsafe { libc::ioctl(fd, FS_IOC_FIEMAP, &raw mut requested) };
    (result == 0).then_some(requested.mapped_extents as usize)
}

// The metadata space of Btrfs: `BTRFS_IOC_FS_INFO`, `/sys/fs/btrfs/UUID/allocation`.

/// The fields of `struct btrfs_ioctl_fs_info_args` that are read.
#[repr(C)]
struct FsInfo {
    max_id: u64,
    num_devices: u64,
    fsid: [u8; 16],
    nodesize: u32,
    others: [u8; 1024 - 36],
}

/// `_IOR(0x94, 31, struct btrfs_ioctl_fs_info_args)`.
const BTRFS_IOC_FS_INFO: libc::Ioctl = 0x8400_941f_u32 as libc::Ioctl;

/// The nodes that each write in place reserves until it is done: two for each level that a tree may have
/// (`btrfs_calc_insert_metadata_size`). A write that must not wait is refused if there is no space for them.
const NODES: u64 = 2 * 8;

pub(super) fn write_room(file: &fs::File) -> Option<usize> {
    let (uuid, nodesize) = info(file)?;
    let counter = |name: &str| -> Option<u64> {
        let of = |kind| format!("/sys/fs/btrfs/{uuid}/allocation/{kind}/{name}");
        // Small filesystems use one kind of space for data and metadata.
        let text = fs::read_to_string(of("metadata")).or_else(|_| fs::read_to_string(of("mixed")));
        text.ok()?.trim().parse().ok()
    };
    let taken = ["bytes_used", "bytes_reserved", "bytes_pinned", "bytes_may_use", "bytes_readonly"];
    let taken = taken.into_iter().map(counter).sum::<Option<u64>>()?;
    let room = counter("total_bytes")?.saturating_sub(taken);
    usize::try_from(room.checked_div(nodesize * NODES)?).ok()
}

/// Returns the filesystem's name in sysfs and the size of its nodes in bytes. `None` if it is not Btrfs.
fn info(file: &fs::File) -> Option<(String, u64)> {
    let mut info =
        FsInfo { max_id: 0, num_devices: 0, fsid: [0; 16], nodesize: 0, others: [0; 1024 - 36] };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: an open file and a live struct with the layout and size of the call.
    let result = unsafe { libc::ioctl(fd, BTRFS_IOC_FS_INFO, &raw mut info) };
    if result != 0 {
        return None;
    }
    let mut uuid = String::with_capacity(36);
    for (place, byte) in info.fsid.iter().enumerate() {
        let dash = if [4, 6, 8, 10].contains(&place) { "-" } else { "" };
        write!(uuid, "{dash}{byte:02x}").ok()?;
    }
    Some((uuid, u64::from(info.nodesize)))
}

// The results of reads and writes that must not wait. Found by trial, because no call reports them.

/// More than two ticks of the slowest clock that Linux can be built with (`CONFIG_HZ=100`).
const TICKS: Duration = Duration::from_millis(25);
/// Longer than a lock is held or a request waits for space.
const MOMENT: Duration = Duration::from_millis(2);
/// The number of rounds in which the timestamps have to be the cause.
const ROUNDS: usize = 3;
/// The number of attempts: the clock may tick between the timestamps and the write, or a lock may be held.
const TRIES: usize = 64;

pub(super) fn nowait_reads(file: &fs::File, to: &mut [u8], offset: u64) -> Option<NowaitReads> {
    if is_read(file, to, offset)? {
        return Some(NowaitReads::Taken);
    }
    let page = to.get_mut(..crate::base::memory::page_bytes());
    let is_page_read = page.map_or(Some(false), |page| is_read(file, page, offset))?;
    Some(if is_page_read { NowaitReads::OfOnePage } else { NowaitReads::Refused })
}

/// Returns true if a read is performed, possibly after some attempts, because a lock may be held.
fn is_read(file: &fs::File, to: &mut [u8], offset: u64) -> Option<bool> {
    for _ in 0..TRIES {
        match read(file, to, offset)? {
            Tried::Done => return Some(true),
            Tried::Refused => return Some(false),
            Tried::WouldWait => {}
        }
    }
    Some(false)
}

pub(super) fn nowait_writes(file: &fs::File, block: &[u8], offset: u64) -> Option<NowaitWrites> {
    let try_one = || write(file, block, offset);
    for _ in 0..ROUNDS {
        let mut tries = (0..TRIES).map(|_| change_times(file).and_then(|()| try_one()));
        if tries.find(|tried| *tried != Some(Tried::WouldWait))?? == Tried::Refused {
            return Some(NowaitWrites::Refused);
        }
        // A write that waits for the timestamps waits until they are updated. Other waits are shorter.
        if lasts(Tried::Done, TICKS, try_one)? || !lasts(Tried::WouldWait, MOMENT, try_one)? {
            return Some(NowaitWrites::Taken);
        }
    }
    let tick = clock_getres(ClockId::RealtimeCoarse).try_into().ok()?;
    Some(NowaitWrites::WaitForTimes { tick })
}

/// Returns true if every attempt ends this way for that long.
fn lasts(end: Tried, time: Duration, try_one: impl Fn() -> Option<Tried>) -> Option<bool> {
    let began = Instant::now();
    loop {
        // Checked before the write, which may take a while.
        let is_last = began.elapsed() > time;
        match try_one()? {
            found if found != end => return Some(false),
            _ if is_last => return Some(true),
            _ => {}
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    Done,
    WouldWait,
    Refused,
}

fn read(file: &fs::File, to: &mut [u8], offset: u64) -> Option<Tried> {
    tried(preadv2(file, &mut [IoSliceMut::new(to)], offset, ReadWriteFlags::NOWAIT))
}

fn write(file: &fs::File, block: &[u8], offset: u64) -> Option<Tried> {
    tried(pwritev2(file, &[IoSlice::new(block)], offset, ReadWriteFlags::NOWAIT))
}

/// Returns the outcome. `None` for an error that proves nothing.
fn tried(result: Result<usize, Errno>) -> Option<Tried> {
    match result {
        Ok(_) => Some(Tried::Done),
        Err(Errno::AGAIN) => Some(Tried::WouldWait),
        Err(Errno::OPNOTSUPP) => Some(Tried::Refused),
        Err(_) => None,
    }
}

/// Sets the file's modification time to now. `None` if this process may not set it.
fn change_times(file: &fs::File) -> Option<()> {
    let special = |nsec| Timespec { tv_sec: 0, tv_nsec: nsec };
    let times =
        Timestamps { last_access: special(UTIME_OMIT), last_modification: special(UTIME_NOW) };
    futimens(file, &times).ok()
}
