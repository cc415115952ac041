//! `FILE_FLAG_OVERLAPPED`, `FILE_FLAG_NO_BUFFERING`, `FileStorageInfo`, `FileAllocationInfo`.

mod allocate;
mod port_handle;

use std::fs::{self, Metadata};
use std::io;
use std::mem;
use std::ops::Deref;
use std::os::windows::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::windows::io::AsRawHandle as _;
use std::path::Path;

use windows_sys::Win32::Foundation::{ERROR_HANDLE_EOF, GENERIC_READ, GENERIC_WRITE};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ATTRIBUTE_COMPRESSED, FILE_ATTRIBUTE_ENCRYPTED, FILE_FLAG_NO_BUFFERING,
    FILE_FLAG_OVERLAPPED, FILE_FLAG_RANDOM_ACCESS, FILE_FLAG_SEQUENTIAL_SCAN,
    FILE_FLAG_WRITE_THROUGH, FILE_GENERIC_WRITE, FILE_STORAGE_INFO, FILE_TYPE_CHAR,
    FILE_WRITE_DATA, FileStorageInfo, GetFileInformationByHandleEx, GetFileType,
};

pub(super) use super::unsupported::{
    cached_bytes, claim_disk, extents, forget_cache, len, next_hole, nowait_reads, nowait_writes,
    read_cached_at, unwritten_bytes, write_in_place, write_room,
};
use super::{Access, Alignment, Facts, File, OpenOptions, SyncMode, not_seekable};
use crate::base::overlapped::OverlappedIo;
use crate::base::wake::Wake;
pub(super) use allocate::allocate;
use port_handle::PortHandles;

/// The open file.
#[derive(Debug)]
pub(super) struct Open {
    // Never use std's methods to read from or write to it: they abort the program if a call on an overlapped
    // file is not complete when it returns (rust-lang/rust#81357).
    file: fs::File,
    /// The access rights and flags that the file was opened with.
    rights: u32,
    flags: u32,
    expose_old_disk_contents: bool,
    port_handles: PortHandles,
}

impl Deref for Open {
    type Target = fs::File;

    fn deref(&self) -> &fs::File {
        &self.file
    }
}

pub(super) fn open(path: &Path, options: &OpenOptions) -> io::Result<Open> {
    let mut flags = FILE_FLAG_OVERLAPPED;
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
    let open = || options.of_std().custom_flags(flags).open(path);
    let file = if options.expose_old_disk_contents {
        allocate::open_with_privilege(open)
    } else {
        open()
    }?;
    // The same rights as std requests.
    let mut rights = if options.read { GENERIC_READ } else { 0 };
    if options.append {
        rights |= FILE_GENERIC_WRITE & !FILE_WRITE_DATA;
    } else if options.write {
        rights |= GENERIC_WRITE;
    }
    let expose_old_disk_contents = options.expose_old_disk_contents;
    Ok(Open { file, rights, flags, expose_old_disk_contents, port_handles: PortHandles::default() })
}

pub(super) fn require_seekable(found: &Metadata) -> io::Result<()> {
    if found.is_dir() { Err(not_seekable(true)) } else { Ok(()) }
}

thread_local! {
    /// The event of this thread, which waits for one call at a time.
    static DONE: io::Result<Wake> = Wake::new();
}

/// Starts a call and waits for its completion.
fn finish(start: impl FnOnce(&Wake) -> OverlappedIo) -> io::Result<usize> {
    DONE.with(|event| match event {
        Ok(event) => start(event).wait(),
        Err(error) => Err(io::Error::from(error.kind())),
    })
}

pub(super) fn read_at(open: &Open, to: &mut [u8], offset: u64) -> io::Result<usize> {
    let (file, start, room) = (open.as_raw_handle(), to.as_mut_ptr(), to.len());
    // SAFETY: the call is complete before this returns. Until then the file is open, and the memory is
    // borrowed here.
    let read = finish(|event| unsafe { OverlappedIo::read_at(file, event, start, room, offset) });
    match read {
        Err(error) if error.raw_os_error() == Some(ERROR_HANDLE_EOF as i32) => Ok(0),
        result => result,
    }
}

pub(super) fn write_at(open: &Open, from: &[u8], offset: u64) -> io::Result<usize> {
    let (file, start, count) = (open.as_raw_handle(), from.as_ptr(), from.len());
    // SAFETY: as for a read.
    finish(|event| unsafe { OverlappedIo::write_at(file, event, start, count, offset) })
}

pub(super) fn sync_all(file: &fs::File) -> io::Result<()> {
    file.sync_all()
}

pub(super) fn sync_data(file: &fs::File) -> io::Result<()> {
    file.sync_data()
}

pub(super) fn may_have_unwritten_data(file: &fs::File) -> bool {
    // SAFETY: an open file.
    unsafe { GetFileType(file.as_raw_handle()) != FILE_TYPE_CHAR }
}

pub(super) fn alignment(file: &fs::File) -> io::Result<Alignment> {
    let mut info = FILE_STORAGE_INFO::default();
    let bytes = mem::size_of::<FILE_STORAGE_INFO>() as u32;
    // SAFETY: an open file, and a buffer of the named size.
    let result = unsafe {
        GetFileInformationByHandleEx(
            file.as_raw_handle(),
            FileStorageInfo,
            (&raw mut info).cast(),
            bytes,
        )
    };
    let sector = info.LogicalBytesPerSector as usize;
    if result == 0 || !sector.is_power_of_two() {
        // Wine does not report it.
        return Ok(Alignment::ASSUMED);
    }
    Ok(Alignment { memory: sector, offset: sector, reported: true, direct: None })
}

pub(super) fn facts(file: &File) -> io::Result<Facts> {
    let attributes = file.0.metadata()?.file_attributes();
    Ok(Facts {
        length: file.len()?,
        compressed: Some(attributes & FILE_ATTRIBUTE_COMPRESSED != 0),
        encrypted: Some(attributes & FILE_ATTRIBUTE_ENCRYPTED != 0),
        ..Facts::default()
    })
}

pub(super) fn is_same_open(_: &Open, _: &fs::File) -> io::Result<bool> {
    Ok(true)
}

pub(super) fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    Ok(one.canonicalize()? == other.canonicalize()?)
}
