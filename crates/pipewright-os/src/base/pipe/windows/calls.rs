//! Single calls on a pipe end, the meaning of their results, and queries for its state.

use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::sync::OnceLock;
use std::{io, ptr};

use windows_sys::Wdk::Storage::FileSystem::{
    FILE_PIPE_CONNECTED_STATE, FILE_PIPE_LOCAL_INFORMATION, FilePipeLocalInformation,
};
use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF, ERROR_INVALID_PARAMETER, ERROR_MORE_DATA, ERROR_NO_DATA,
    ERROR_OPERATION_ABORTED, ERROR_PIPE_NOT_CONNECTED,
};
use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_PIPE, GetFileType, ReadFile, WriteFile};
use windows_sys::Win32::System::Console::GetConsoleMode;
use windows_sys::Win32::System::Pipes::{GetNamedPipeInfo, PeekNamedPipe};

use super::{Reader, Writer, available};
use crate::base::error::os_error;
use crate::base::handle::{is_overlapped, query};
use crate::base::overlapped::{OverlappedIo, clamp_to_u32};
use crate::base::wake::Wake;

/// The most that one read requests, if the size is ours to choose.
pub(crate) const MOST_READ_BYTES: usize = 128 << 10;

/// Interprets the result of a read: the number of bytes, 0 at the end. `None`: nothing was read,
/// and the stream goes on.
pub(crate) fn map_read_result(
    file: BorrowedHandle<'_>,
    result: io::Result<usize>,
) -> Option<io::Result<usize>> {
    match result {
        // Another writer has written zero bytes; at the end of a pipe there would be an error.
        Ok(0) if is_open_pipe(file) => None,
        Ok(count) => Some(Ok(count)),
        Err(error) => match error.raw_os_error().map(|code| code as u32) {
            Some(ERROR_BROKEN_PIPE | ERROR_HANDLE_EOF | ERROR_PIPE_NOT_CONNECTED) => Some(Ok(0)),
            Some(ERROR_OPERATION_ABORTED) => None,
            _ => Some(Err(error)),
        },
    }
}

/// Interprets the result of a write. A write that other code has cancelled is an error, and not
/// repeated: some of its bytes may have been read.
pub(crate) fn map_write_result(result: io::Result<usize>) -> io::Result<usize> {
    result.map_err(|error| match error.raw_os_error().map(|code| code as u32) {
        // Three codes for one fact. std knows two of them.
        Some(ERROR_NO_DATA | ERROR_PIPE_NOT_CONNECTED) => os_error(ERROR_BROKEN_PIPE),
        _ => error,
    })
}

pub(in crate::base::pipe) fn read(reader: &Reader, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: a live slice, mutably borrowed for the call.
    let count = unsafe { read_to(reader, buffer.as_mut_ptr(), buffer.len()) }?;
    reader.note_read(buffer.get(..count).unwrap_or_default());
    Ok(count)
}

pub(in crate::base::pipe) fn read_spare(
    reader: &Reader,
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    read_spare_with(reader, buffer, |to, room| {
        // SAFETY: the spare capacity of a buffer that is mutably borrowed.
        unsafe { read_to(reader, to, room) }
    })
}

pub(in crate::base::pipe) fn try_read_spare(
    reader: &Reader,
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    read_spare_with(reader, buffer, |to, room| {
        // SAFETY: as above.
        unsafe { try_read_to(reader, to, room) }
    })
}

/// Reads into the spare capacity of a buffer.
fn read_spare_with(
    reader: &Reader,
    buffer: &mut Vec<u8>,
    read: impl FnOnce(*mut u8, usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    let room = spare.len().min(MOST_READ_BYTES);
    let count = read(spare.as_mut_ptr().cast(), room)?;
    // SAFETY: the read has initialized that many bytes after the length.
    unsafe { buffer.set_len(buffer.len() + count) };
    reader.note_read(buffer.get(buffer.len() - count..).unwrap_or_default());
    Ok(count)
}

/// Reads into raw memory, and waits for data.
///
/// # Safety
/// `to` points to that many bytes of live memory that nothing else uses.
unsafe fn read_to(reader: &Reader, to: *mut u8, room: usize) -> io::Result<usize> {
    if room == 0 {
        return Ok(0);
    }
    if let Some(console) = &reader.console {
        // SAFETY: promised by the caller.
        let read = unsafe { console.read(reader.handle.as_handle(), to, room, true) };
        return read.unwrap_or(Ok(0));
    }
    loop {
        let result = if reader.overlapped {
            let event = Wake::new()?;
            // SAFETY: promised by the caller; it is done when `wait` returns.
            unsafe { OverlappedIo::read(reader.raw(), &event, to, room) }.wait()
        } else {
            // SAFETY: promised by the caller.
            unsafe { read_now(reader, to, room) }
        };
        if let Some(done) = map_read_result(reader.handle.as_handle(), result) {
            return done;
        }
    }
}

/// Reads into raw memory; `WouldBlock` if there is no data.
///
/// # Safety
/// As [`read_to`].
unsafe fn try_read_to(reader: &Reader, to: *mut u8, room: usize) -> io::Result<usize> {
    if room == 0 {
        return Ok(0);
    }
    if let Some(console) = &reader.console {
        // SAFETY: promised by the caller.
        let read = unsafe { console.read(reader.handle.as_handle(), to, room, false) };
        return read.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()));
    }
    if !reader.overlapped {
        // An object that is no pipe cannot be queried. It has data, or the read waits.
        return match available(reader) {
            Ok(0) if is_open_pipe(reader.handle.as_handle()) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            // SAFETY: promised by the caller.
            _ => unsafe { read_to(reader, to, room) },
        };
    }
    let event = Wake::new()?;
    loop {
        // SAFETY: promised by the caller; it is done when `stop` returns.
        let mut operation = unsafe { OverlappedIo::read(reader.raw(), &event, to, room) };
        let Some(result) = operation.stop() else { return Err(io::ErrorKind::WouldBlock.into()) };
        if let Some(done) = map_read_result(reader.handle.as_handle(), result) {
            return done;
        }
    }
}

/// Reads from a synchronous end.
///
/// # Safety
/// As [`read_to`].
unsafe fn read_now(reader: &Reader, to: *mut u8, room: usize) -> io::Result<usize> {
    let mut count = 0;
    // SAFETY: promised by the caller; and a live integer.
    let read =
        unsafe { ReadFile(reader.raw(), to, clamp_to_u32(room), &raw mut count, ptr::null_mut()) };
    match read {
        0 => match io::Error::last_os_error() {
            // The message is longer than the buffer: the part that fits has arrived.
            error if error.raw_os_error() == Some(ERROR_MORE_DATA as i32) => Ok(count as usize),
            error => Err(error),
        },
        _ => Ok(count as usize),
    }
}

pub(in crate::base::pipe) fn write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
    let end = writer.end();
    if bytes.is_empty() {
        // A reader would see a write of zero bytes.
        return Ok(0);
    }
    let pending = end.wait_for_pending(bytes);
    map_write_result(pending.unwrap_or_else(|| end.blocking_write()(&end.handle, bytes)))
}

/// Writes to an overlapped pipe, and waits for the result.
pub(super) fn write_overlapped(handle: &OwnedHandle, bytes: &[u8]) -> io::Result<usize> {
    write_at(handle, bytes, 0)
}

/// Writes to a handle of unknown mode, and waits for the result.
pub(super) fn write_unknown(handle: &OwnedHandle, bytes: &[u8]) -> io::Result<usize> {
    /// The offset that stands for the current position of a synchronous file (`FILE_USE_FILE_POINTER_POSITION`, see
    /// ZwWriteFile). With 0 a file would be overwritten from its start.
    const CURRENT_POSITION: u64 = 0xffff_ffff_ffff_fffe;
    match write_at(handle, bytes, CURRENT_POSITION) {
        // An overlapped handle has no position, and nothing was written.
        Err(error) if error.raw_os_error() == Some(ERROR_INVALID_PARAMETER as i32) => {
            write_at(handle, bytes, 0)
        }
        written => written,
    }
}

fn write_at(handle: &OwnedHandle, bytes: &[u8], offset: u64) -> io::Result<usize> {
    let (raw, event) = (handle.as_raw_handle(), Wake::new()?);
    // SAFETY: an open handle and a live slice; it is done when `wait` returns.
    unsafe { OverlappedIo::write_at(raw, &event, bytes.as_ptr(), bytes.len(), offset) }.wait()
}

/// Writes to a synchronous handle.
pub(super) fn write_now(handle: &OwnedHandle, bytes: &[u8]) -> io::Result<usize> {
    let (raw, mut count) = (handle.as_raw_handle(), 0);
    let length = clamp_to_u32(bytes.len());
    // SAFETY: an open handle, a live slice and a live integer.
    let written =
        unsafe { WriteFile(raw, bytes.as_ptr(), length, &raw mut count, ptr::null_mut()) };
    match written {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(count as usize),
    }
}

#[cfg(test)]
impl super::WriteEnd {
    /// Writes zero bytes directly: the crate's own functions skip such writes.
    pub(crate) fn write_nothing(&self) {
        write_now(&self.handle, &[]).unwrap();
    }
}

pub(in crate::base::pipe) fn try_write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
    let end = writer.end();
    if !end.is_overlapped() {
        return write(writer, bytes);
    }
    if bytes.is_empty() {
        // A write of zero bytes does not replace a pending write, so it must not cancel it.
        return Ok(0);
    }
    if let Some(done) = end.take_result_for(bytes) {
        return map_write_result(done);
    }
    let (event, would_block) = (Wake::new()?, || Err(io::ErrorKind::WouldBlock.into()));
    let mut piece = end.piece(bytes);
    if let Some(room) = room(end.handle.as_handle()) {
        if room == 0 {
            return would_block();
        }
        // As much as the pipe takes at once, so that there is nothing to cancel unless another
        // process writes too.
        piece = piece.get(..room).unwrap_or(piece);
    }
    while !piece.is_empty() {
        // SAFETY: a live slice; it is done when `stop` returns.
        let mut operation =
            unsafe { OverlappedIo::write(end.raw(), &event, piece.as_ptr(), piece.len()) };
        if let Some(done) = operation.stop() {
            return map_write_result(done);
        }
        // The pipe has no room for all of it; half of it may fit.
        piece = piece.get(..piece.len() / 2).unwrap_or_default();
    }
    would_block()
}

pub(in crate::base::pipe) fn has_room(writer: &Writer) -> bool {
    let end = writer.end();
    // An overlapped end never blocks. For another pipe the kernel does not answer while another
    // thread is blocked in a write to it, and it counts space that a reader waits for as used.
    matches!(end.blocking, WriteBlocking::Overlapped | WriteBlocking::Never)
}

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
pub(super) fn available_in(handle: BorrowedHandle<'_>) -> io::Result<usize> {
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
fn is_open_pipe(handle: BorrowedHandle<'_>) -> bool {
    let none = ptr::null_mut();
    // SAFETY: an open handle, no buffer, and null pointers, which the call permits.
    let succeeded =
        unsafe { PeekNamedPipe(handle.as_raw_handle(), ptr::null_mut(), 0, none, none, none) };
    succeeded != 0
}
