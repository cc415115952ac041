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
    // By its whole name: a relative one is looked for in the working directory first.
    let null = OpenOptions::new().read(true).write(true).open(r"\\.\NUL")?;
    Ok(Handle::of_synchronous(null.into()))
}

pub(super) fn console(number: i32) -> io::Result<Handle> {
    let handle = standard(number)
        .ok_or_else(|| io::Error::from_raw_os_error(ERROR_INVALID_HANDLE as i32))?;
    copy_of(handle, false).map(Handle::from)
}

pub(super) fn console_writer(to_stderr: bool) -> io::Result<Option<PipeWriter>> {
    let Some(handle) = standard(if to_stderr { 2 } else { 1 }) else { return Ok(None) };
    match copy_of(handle, false) {
        Ok(copy) => Ok(Some(PipeWriter::to_console(copy, !to_stderr))),
        // A number that was passed on without its handle, or has been closed since.
        Err(error) if error.raw_os_error() == Some(ERROR_INVALID_HANDLE as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn writer_to(target: Handle) -> io::Result<PipeWriter> {
    Ok(PipeWriter::from(OwnedHandle::from(target)))
}

/// This process's own; `None`: it has none, as a program without a console.
///
/// Whoever started us may have left any number there. -1 and -2 are names that every process has for
/// itself and for its thread, and the second is what Microsoft's C library calls a stream that is not
/// there: a copy would be a handle on this thread, with every right, and a child would have it.
pub(crate) fn standard(number: i32) -> Option<HANDLE> {
    let which = match number {
        0 => STD_INPUT_HANDLE,
        1 => STD_OUTPUT_HANDLE,
        _ => STD_ERROR_HANDLE,
    };
    // SAFETY: one of the three that it knows.
    let handle = unsafe { GetStdHandle(which) };
    Some(handle).filter(|handle| handle.addr() as isize > 0)
}
