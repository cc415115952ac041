//! Errors: macOS does not pin threads.

use std::io;

pub(super) use super::unix::online;

pub(super) fn allowed() -> io::Result<Vec<usize>> {
    Err(unsupported())
}

pub(super) fn pin_this_thread(_: usize) -> io::Result<()> {
    Err(unsupported())
}

pub(super) fn same_core(_: usize) -> Option<Vec<usize>> {
    None
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "macOS does not pin threads to processors")
}
