//! `F_NOCACHE`, `F_RDAHEAD`, `F_PREALLOCATE`.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

pub(super) use super::unix::{is_same, read_at, refuse_what_has_no_places, write_at};
use super::{Access, Alignment, Facts, File, NowaitReads, NowaitWrites, OpenOptions};

/// A file as it is kept open.
pub(super) type Open = fs::File;

pub(super) fn open(path: &Path, options: &OpenOptions) -> io::Result<fs::File> {
    let file = super::unix::open(path, options, 0)?;
    if options.direct {
        set(&file, libc::F_NOCACHE, 1)?;
    }
    match options.access {
        Access::Normal => {}
        Access::Sequential => set(&file, libc::F_RDAHEAD, 1)?,
        Access::Random => set(&file, libc::F_RDAHEAD, 0)?,
    }
    Ok(file)
}

fn set(file: &fs::File, command: libc::c_int, to: libc::c_int) -> io::Result<()> {
    // SAFETY: an open file, and a command that takes a number.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, to) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn read_cached_at(_: &fs::File, _: &mut [u8], _: u64) -> io::Result<Option<usize>> {
    // No call reads only what is there.
    Ok(None)
}

pub(super) fn allocate(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
    let end = offset.checked_add(bytes).ok_or(io::ErrorKind::InvalidInput)?;
    let length = len(file)?;
    if end <= length {
        // There is no call that fills holes.
        return Ok(());
    }
    let room = i64::try_from(end - length).map_err(|_| io::ErrorKind::InvalidInput)?;
    let store = libc::fstore_t {
        fst_flags: libc::F_ALLOCATEALL,
        fst_posmode: libc::F_PEOFPOSMODE,
        fst_offset: 0,
        fst_length: room,
        fst_bytesalloc: 0,
    };
    // SAFETY: an open file, and the struct that the command takes.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PREALLOCATE, &raw const store) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    file.set_len(end)
}

pub(super) fn len(file: &fs::File) -> io::Result<u64> {
    file.metadata().map(|found| found.len())
}

pub(super) fn alignment(_: &fs::File) -> io::Result<Alignment> {
    Ok(Alignment::NONE)
}

pub(super) fn facts(file: &File) -> io::Result<Facts> {
    Ok(Facts { length: file.len()?, ..Facts::default() })
}

pub(super) fn nowait_reads(_: &fs::File, _: &mut [u8], _: u64) -> Option<NowaitReads> {
    None
}

pub(super) fn nowait_writes(_: &fs::File, _: &[u8], _: u64) -> Option<NowaitWrites> {
    None
}

pub(super) fn extents(_: &fs::File, _: u64, _: u64) -> Option<usize> {
    None
}

pub(super) fn write_room(_: &fs::File) -> Option<usize> {
    None
}

pub(super) fn cached_bytes(_: &fs::File, _: u64, _: u64) -> Option<u64> {
    None
}

pub(super) fn unwritten_bytes(_: &fs::File, _: u64, _: u64) -> Option<u64> {
    None
}

pub(super) fn forget_cache(_: &fs::File) -> io::Result<()> {
    Ok(())
}

pub(super) fn claim_disk(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

pub(super) fn write_in_place(_: &fs::File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn next_hole(_: &fs::File, _: u64) -> Option<u64> {
    None
}
