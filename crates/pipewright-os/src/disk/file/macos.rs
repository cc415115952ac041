//! `F_NOCACHE`, `F_RDAHEAD`, `F_PREALLOCATE`.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

pub(super) use super::unix::{
    is_same, is_same_open, read_at, require_seekable, sync_all, sync_data, write_at,
};
pub(super) use super::unsupported::{
    cached_bytes, claim_disk, extents, forget_cache, len, next_hole, nowait_reads, nowait_writes,
    read_cached_at, unwritten_bytes, write_in_place, write_room,
};
use super::{Access, Alignment, Facts, File, OpenOptions};

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

pub(super) fn allocate(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
    let end = offset.checked_add(bytes).ok_or(io::ErrorKind::InvalidInput)?;
    let length = len(file)?;
    if end <= length {
        // No call fills holes.
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

pub(super) fn may_have_unwritten_data(file: &fs::File) -> bool {
    !super::unix::is_character_device(file)
}

pub(super) fn alignment(_: &fs::File) -> io::Result<Alignment> {
    Ok(Alignment::NONE)
}

pub(super) fn facts(file: &File) -> io::Result<Facts> {
    Ok(Facts { length: file.len()?, ..Facts::default() })
}
