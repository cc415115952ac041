//! What the kernel tells of a pipe.

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

use crate::base::handle::{overlaps, query};

/// What an anonymous pipe holds as a rule, where it cannot be told.
pub(super) const UNTOLD_BYTES: usize = 4 << 10;

/// Where a write waits, if it has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// In the kernel, while we do something else.
    Overlapped,
    /// In the call.
    InTheCall,
    /// In the call, and in the console as well, which shows it later whatever becomes of the call.
    InTheConsole,
    /// Nowhere: a disk is not waited for here.
    Never,
    /// It was asked, and somebody else's call stood before the answer.
    Untold,
}

/// Where writes to a handle wait.
pub(super) fn waits(handle: BorrowedHandle<'_>) -> Waits {
    let (raw, mut mode) = (handle.as_raw_handle(), 0);
    if overlaps(handle) {
        return Waits::Overlapped;
    }
    // SAFETY: an open handle and a live number.
    if unsafe { GetConsoleMode(raw, &raw mut mode) } != 0 {
        return Waits::InTheConsole;
    }
    // SAFETY: an open handle.
    match unsafe { GetFileType(raw) } {
        FILE_TYPE_PIPE => Waits::InTheCall,
        _ => Waits::Never,
    }
}

/// What a pipe holds at least in one direction.
pub(super) fn holds_bytes(handle: BorrowedHandle<'_>) -> usize {
    let (mut out, mut into) = (0, 0);
    // SAFETY: an open handle, two live numbers, and two that nobody wants.
    let told = unsafe {
        let none = ptr::null_mut();
        GetNamedPipeInfo(handle.as_raw_handle(), none, &raw mut out, &raw mut into, none)
    };
    match out.min(into) {
        _ if told == 0 => UNTOLD_BYTES,
        // A pipe that holds nothing: a write of one byte cannot be taken in parts.
        bytes => bytes.max(1) as usize,
    }
}

/// The number of bytes that a write to an end that overlaps can take at once. `None`: the system cannot
/// tell, or the pipe is broken, and a write says so.
///
/// A read that waits at the other end counts as full for as many bytes as it asks for.
pub(crate) fn room(handle: BorrowedHandle<'_>) -> Option<usize> {
    static TELLS: OnceLock<bool> = OnceLock::new();
    let tells = || {
        // Wine says that every pipe is full.
        let empty = super::make::pair(Default::default());
        empty.is_ok_and(|ends| told_room(ends.write.as_handle()).is_some_and(|room| room > 0))
    };
    if *TELLS.get_or_init(tells) { told_room(handle) } else { None }
}

pub(super) fn told_room(handle: BorrowedHandle<'_>) -> Option<usize> {
    let mut told = FILE_PIPE_LOCAL_INFORMATION::default();
    // SAFETY: the class is that struct.
    unsafe { query(handle, FilePipeLocalInformation, &raw mut told) }.ok()?;
    let is_whole = told.NamedPipeState == FILE_PIPE_CONNECTED_STATE;
    is_whole.then_some(told.WriteQuotaAvailable as usize)
}

/// How many bytes can be read.
pub(super) fn available(handle: BorrowedHandle<'_>) -> io::Result<usize> {
    let mut count = 0;
    // SAFETY: an open handle, no buffer, one live number and two that nobody wants.
    let told = unsafe {
        let (none, no_number) = (ptr::null_mut(), ptr::null_mut());
        PeekNamedPipe(handle.as_raw_handle(), none, 0, no_number, &raw mut count, no_number)
    };
    if told != 0 {
        return Ok(count as usize);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error().map(|code| code as u32) {
        Some(ERROR_BROKEN_PIPE | ERROR_PIPE_NOT_CONNECTED) => Ok(0),
        _ => Err(error),
    }
}

/// Whether somebody can still write to what is a pipe.
pub(super) fn is_open_pipe(handle: BorrowedHandle<'_>) -> bool {
    let none = ptr::null_mut();
    // SAFETY: an open handle, no buffer, and numbers that nobody wants.
    let told =
        unsafe { PeekNamedPipe(handle.as_raw_handle(), ptr::null_mut(), 0, none, none, none) };
    told != 0
}
