//! `FILE_FLAG_NO_BUFFERING`, `FileStorageInfo`, `SetEndOfFile`.

use std::fs::{self, Metadata};
use std::io;
use std::mem;
use std::os::windows::fs::{FileExt as _, OpenOptionsExt as _};
use std::os::windows::io::AsRawHandle as _;
use std::path::Path;

use windows_sys::Win32::Foundation::ERROR_HANDLE_EOF;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_NO_BUFFERING, FILE_FLAG_RANDOM_ACCESS, FILE_FLAG_SEQUENTIAL_SCAN,
    FILE_FLAG_WRITE_THROUGH, FILE_STORAGE_INFO, FileStorageInfo, GetFileInformationByHandleEx,
};

use super::{Access, Alignment, Facts, File, OpenOptions, SyncMode, refusal};

pub(super) fn open(path: &Path, options: &OpenOptions) -> io::Result<fs::File> {
    let mut flags = 0;
    if options.direct {
        flags |= FILE_FLAG_NO_BUFFERING;
    }
    if options.sync != SyncMode::None {
        flags |= FILE_FLAG_WRITE_THROUGH;
    }
    match options.access {
        Access::Normal => {}
        Access::Sequential => flags |= FILE_FLAG_SEQUENTIAL_SCAN,
        Access::Random => flags |= FILE_FLAG_RANDOM_ACCESS,
    }
    fs::OpenOptions::new()
        .read(options.read)
        .write(options.write)
        .append(options.append)
        .create(options.create)
        .create_new(options.create_new)
        .truncate(options.truncate)
        .custom_flags(flags)
        .open(path)
}

pub(super) fn refuse_what_has_no_places(found: &Metadata) -> io::Result<()> {
    if found.is_dir() { Err(refusal(true)) } else { Ok(()) }
}

pub(super) fn read_at(file: &fs::File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    match file.seek_read(to, offset) {
        Err(error) if error.raw_os_error() == Some(ERROR_HANDLE_EOF as i32) => Ok(0),
        result => result,
    }
}

pub(super) fn write_at(file: &fs::File, from: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(from, offset)
}

pub(super) fn read_cached_at(_: &fs::File, _: &mut [u8], _: u64) -> io::Result<Option<usize>> {
    // No call reads only what is there.
    Ok(None)
}

pub(super) fn allocate(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
    let end = offset.checked_add(bytes).ok_or(io::ErrorKind::InvalidInput)?;
    if end > len(file)? { file.set_len(end) } else { Ok(()) }
}

pub(super) fn len(file: &fs::File) -> io::Result<u64> {
    file.metadata().map(|found| found.len())
}

pub(super) fn alignment(file: &fs::File) -> io::Result<Alignment> {
    let mut told = FILE_STORAGE_INFO::default();
    let bytes = mem::size_of::<FILE_STORAGE_INFO>() as u32;
    // SAFETY: an open file, and room of the size that is named.
    let result = unsafe {
        GetFileInformationByHandleEx(
            file.as_raw_handle(),
            FileStorageInfo,
            (&raw mut told).cast(),
            bytes,
        )
    };
    let sector = told.LogicalBytesPerSector as usize;
    if result == 0 || !sector.is_power_of_two() {
        // Wine does not tell.
        return Ok(Alignment::ASSUMED);
    }
    Ok(Alignment { memory: sector, offset: sector, told: true, direct: None })
}

pub(super) fn facts(file: &File) -> io::Result<Facts> {
    Ok(Facts { length: file.len()?, ..Facts::default() })
}

pub(super) fn cached_bytes(_: &fs::File, _: u64, _: u64) -> Option<u64> {
    None
}

pub(super) fn forget_cache(_: &fs::File) -> io::Result<()> {
    Ok(())
}

pub(super) fn next_hole(_: &fs::File, _: u64) -> Option<u64> {
    None
}
