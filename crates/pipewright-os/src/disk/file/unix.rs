//! The calls that Unix systems share: `open`, `pread`, `pwrite`, `fsync`.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::{OpenOptions, SyncMode, not_seekable};

/// Opens the file with additional flags.
pub(super) fn open(path: &Path, options: &OpenOptions, flags: libc::c_int) -> io::Result<File> {
    let sync = match options.sync {
        SyncMode::None => 0,
        SyncMode::Data => libc::O_DSYNC,
        SyncMode::All => libc::O_SYNC,
    };
    options.of_std().custom_flags(flags | sync).open(path)
}

pub(super) fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (std::fs::metadata(one)?, std::fs::metadata(other)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

pub(super) fn is_same_open(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

pub(super) fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(to, offset)
}

pub(super) fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(from, offset)
}

// The functions of std repeat the call after EINTR: the second one would succeed without the data that the first one
// has lost.
pub(super) fn sync_all(file: &File) -> io::Result<()> {
    #[cfg(target_os = "macos")]
    // SAFETY: an open file, and a command without an argument.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_FULLFSYNC) };
    #[cfg(not(target_os = "macos"))]
    // SAFETY: an open file.
    let result = unsafe { libc::fsync(file.as_raw_fd()) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn sync_data(file: &File) -> io::Result<()> {
    #[cfg(target_os = "macos")]
    return sync_all(file);
    #[cfg(not(target_os = "macos"))]
    // SAFETY: an open file.
    match unsafe { libc::fdatasync(file.as_raw_fd()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

pub(super) fn is_character_device(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.file_type().is_char_device())
}

pub(super) fn require_seekable(found: &Metadata) -> io::Result<()> {
    let kind = found.file_type();
    if kind.is_file() || kind.is_block_device() || kind.is_char_device() {
        Ok(())
    } else {
        Err(not_seekable(kind.is_dir()))
    }
}
