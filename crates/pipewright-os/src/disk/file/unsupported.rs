//! The answers of systems that have no call to look into the page cache, the extents or the flags of a file.
//!
//! macOS and Windows share them.

use std::fs;
use std::io;
use std::path::Path;

use super::{NowaitReads, NowaitWrites};

/// Returns `None`: no call reads only data that are in memory.
pub(super) fn read_cached_at(_: &fs::File, _: &mut [u8], _: u64) -> io::Result<Option<usize>> {
    Ok(None)
}

pub(super) fn len(file: &fs::File) -> io::Result<u64> {
    file.metadata().map(|found| found.len())
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

/// Opens the disk. Nothing keeps other processes away from it.
pub(super) fn claim_disk(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

pub(super) fn write_in_place(_: &fs::File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn next_hole(_: &fs::File, _: u64) -> Option<u64> {
    None
}
