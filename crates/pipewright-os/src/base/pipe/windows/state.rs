//! Queries for the state of a pipe.

use std::io;
use std::os::windows::io::{AsHandle as _, AsRawHandle, BorrowedHandle};
use std::ptr;
use std::sync::OnceLock;

use windows_sys::Wdk::Storage::FileSystem::{
    FILE_PIPE_CONNECTED_STATE, FILE_PIPE_LOCAL_INFORMATION, FilePipeLocalInformation,
};
use windows_sys::Win32::Foundation::{ERROR_BROKEN_PIPE, ERROR_PIPE_NOT_CONNECTED};
use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_PIPE, GetFileType};
use windows_sys::Win32::System::Console::GetConsoleMode;
use windows_sys::Win32::System::Pipes::{GetNamedPipeInfo, PeekNamedPipe};

use crate::base::handle::{is_overlapped, query};

/// The assumed capacity if the query fails: the usual one of an anonymous pipe.
pub(super) const UNKNOWN_CAPACITY_BYTES: usize = 4 << 10;

/// The place where a write blocks, if it has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteBlocking {
    /// In the kernel, while this process does something else.
    Overlapped,
    /// In the call.
    InCall,
    /// In the call, and in the console, which shows the text later even if the call is cancelled.
    InConsole,
    /// Nowhere: the wait for a disk does not count.
    Never,
    /// Unknown: another call on the same file blocked the query.
    Unknown,
}

/// Returns the place where writes to a handle block.
pub(super) fn write_blocking(handle: BorrowedHandle<'_>) -> WriteBlocking {
    let (raw, mut mode) = (handle.as_raw_handle(), 0);
    if is_overlapped(handle) {
        return WriteBlocking::Overlapped;
    }
    // SAFETY: an open handle and a live integer.
    if unsafe { GetConsoleMode(raw, &raw mut mode) } != 0 {
        return WriteBlocking::InConsole;
    }
    // SAFETY: an open handle.
    match unsafe { GetFileType(raw) } {
        FILE_TYPE_PIPE => WriteBlocking::InCall,
        _ => WriteBlocking::Never,
    }
}

/// Returns the capacity of a pipe: the smaller one of its two directions.
pub(super) fn capacity_bytes(handle: BorrowedHandle<'_>) -> usize {
    let (mut out, mut into) = (0, 0);
    // SAFETY: an open handle, two live integers, and two null pointers, which the call permits.
    let succeeded = unsafe {
        let none = ptr::null_mut();
        GetNamedPipeInfo(handle.as_raw_handle(), none, &raw mut out, &raw mut into, none)
    };
    match out.min(into) {
        _ if succeeded == 0 => UNKNOWN_CAPACITY_BYTES,
        // A pipe without capacity: a write of one byte cannot be split.
        bytes => bytes.max(1) as usize,
    }
}

/// Returns the number of bytes that a write to an overlapped end can take at once. `None`: the
/// system does not report it, or the pipe is broken, as a write will say.
///
/// Space that a waiting read at the other end has requested counts as used.
pub(crate) fn room(handle: BorrowedHandle<'_>) -> Option<usize> {
    static IS_REPORTED: OnceLock<bool> = OnceLock::new();
    let is_reported = || {
        // Wine reports every pipe as full.
        let new_pipe = super::make::pair(Default::default());
        new_pipe
            .is_ok_and(|ends| reported_room(ends.write.as_handle()).is_some_and(|room| room > 0))
    };
    if *IS_REPORTED.get_or_init(is_reported) { reported_room(handle) } else { None }
}

pub(super) fn reported_room(handle: BorrowedHandle<'_>) -> Option<usize> {
    let mut info = FILE_PIPE_LOCAL_INFORMATION::default();
    // SAFETY: the class returns that struct.
    unsafe { query(handle, FilePipeLocalInformation, &raw mut info) }.ok()?;
    let is_connected = info.NamedPipeState == FILE_PIPE_CONNECTED_STATE;
    is_connected.then_some(info.WriteQuotaAvailable as usize)
}

/// Returns the number of bytes that can be read.
pub(super) fn available(handle: BorrowedHandle<'_>) -> io::Result<usize> {
    let mut count = 0;
    // SAFETY: an open handle, no buffer, one live integer and two null pointers, which the call
    // permits.
    let succeeded = unsafe {
        let (none, no_number) = (ptr::null_mut(), ptr::null_mut());
        PeekNamedPipe(handle.as_raw_handle(), none, 0, no_number, &raw mut count, no_number)
    };
    if succeeded != 0 {
        return Ok(count as usize);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error().map(|code| code as u32) {
        Some(ERROR_BROKEN_PIPE | ERROR_PIPE_NOT_CONNECTED) => Ok(0),
        _ => Err(error),
    }
}

/// Returns true if the handle is a pipe whose writing end is still open.
pub(super) fn is_open_pipe(handle: BorrowedHandle<'_>) -> bool {
    let none = ptr::null_mut();
    // SAFETY: an open handle, no buffer, and null pointers, which the call permits.
    let succeeded =
        unsafe { PeekNamedPipe(handle.as_raw_handle(), ptr::null_mut(), 0, none, none, none) };
    succeeded != 0
}
