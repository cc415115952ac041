//! `pread`, `pwrite`, and what can be opened at all.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};

use super::refusal;

pub(super) fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(to, offset)
}

pub(super) fn write_at(file: &File, from: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(from, offset)
}

pub(super) fn refuse_what_has_no_places(found: &Metadata) -> io::Result<()> {
    let kind = found.file_type();
    if kind.is_file() || kind.is_block_device() || kind.is_char_device() {
        Ok(())
    } else {
        Err(refusal(kind.is_dir()))
    }
}
