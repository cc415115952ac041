//! `NUL`, and the standard handles.

use std::fs::OpenOptions;
use std::io;
use std::os::windows::io::OwnedHandle;

use windows_sys::Win32::Foundation::{ERROR_INVALID_HANDLE, HANDLE};
use windows_sys::Win32::System::Console::{
    GetStdHandle, STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE,
};

use crate::base::handle::{Handle, copy_of};
use crate::base::pipe::PipeWriter;

pub(super) fn null() -> io::Result<Handle> {
    // The full device name: a relative one is looked up in the working directory first.
    let null = OpenOptions::new().read(true).write(true).open(r"\\.\NUL")?;
    Ok(Handle::of_synchronous(null.into()))
}

pub(super) fn console(number: i32) -> io::Result<Handle> {
    let handle = standard(number)
        .ok_or_else(|| io::Error::from_raw_os_error(ERROR_INVALID_HANDLE as i32))?;
    copy_of(handle, false).map(Handle::from)
}

pub(super) fn console_writer(to_stderr: bool) -> io::Result<Option<PipeWriter>> {
    let copy = copy_of_standard(if to_stderr { 2 } else { 1 })?;
    Ok(copy.map(|copy| PipeWriter::to_console(copy, !to_stderr)))
}

/// Duplicates a standard handle of this process; `None`: it is missing or closed.
pub(super) fn copy_of_standard(number: i32) -> io::Result<Option<OwnedHandle>> {
    let Some(handle) = standard(number) else { return Ok(None) };
    match copy_of(handle, false) {
        Ok(copy) => Ok(Some(copy)),
        // A number that was inherited without its handle, or whose handle has been closed.
        Err(error) if error.raw_os_error() == Some(ERROR_INVALID_HANDLE as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn writer_to(target: Handle) -> io::Result<PipeWriter> {
    Ok(PipeWriter::from(OwnedHandle::from(target)))
}

/// Returns a standard handle of this process; `None`: there is none, as in a program without a
/// console.
///
/// The parent may have left any number there. -1 and -2 are pseudo handles for the process itself
/// and its thread, and Microsoft's C library uses -2 for a missing stream. A duplicate would be a
/// handle of this thread, with every right, and a child would get it.
pub(crate) fn standard(number: i32) -> Option<HANDLE> {
    let which = match number {
        0 => STD_INPUT_HANDLE,
        1 => STD_OUTPUT_HANDLE,
        _ => STD_ERROR_HANDLE,
    };
    // SAFETY: one of the three valid names.
    let handle = unsafe { GetStdHandle(which) };
    Some(handle).filter(|handle| handle.addr() as isize > 0)
}
