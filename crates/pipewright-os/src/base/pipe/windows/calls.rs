//! Single calls on a pipe end, and the meaning of their results.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF, ERROR_INVALID_PARAMETER, ERROR_MORE_DATA, ERROR_NO_DATA,
    ERROR_OPERATION_ABORTED, ERROR_PIPE_NOT_CONNECTED,
};
use windows_sys::Win32::Storage::FileSystem::{ReadFile, WriteFile};

use super::state::{self, WriteBlocking};
use super::{Reader, Writer, available};
use crate::base::error::os_error;
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
        Ok(0) if state::is_open_pipe(file) => None,
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

pub(in super::super) fn read(reader: &Reader, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: a live slice, mutably borrowed for the call.
    let count = unsafe { read_to(reader, buffer.as_mut_ptr(), buffer.len()) }?;
    reader.note_read(buffer.get(..count).unwrap_or_default());
    Ok(count)
}

pub(in super::super) fn read_spare(reader: &Reader, buffer: &mut Vec<u8>) -> io::Result<usize> {
    read_spare_with(reader, buffer, |to, room| {
        // SAFETY: the spare capacity of a buffer that is mutably borrowed.
        unsafe { read_to(reader, to, room) }
    })
}

pub(in super::super) fn try_read_spare(reader: &Reader, buffer: &mut Vec<u8>) -> io::Result<usize> {
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
            Ok(0) if state::is_open_pipe(reader.handle.as_handle()) => {
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

pub(in super::super) fn write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
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
    /// The offset that stands for the current position of a synchronous file (`FILE_USE_FILE_POINTER_POSITION`, see ZwWriteFile).
    /// With 0 a file would be overwritten from its start.
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

pub(in super::super) fn try_write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
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
    if let Some(room) = state::room(end.handle.as_handle()) {
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

pub(in super::super) fn has_room(writer: &Writer) -> bool {
    let end = writer.end();
    // An overlapped end never blocks. For another pipe the kernel does not answer while another
    // thread is blocked in a write to it, and it counts space that a reader waits for as used.
    matches!(end.blocking, WriteBlocking::Overlapped | WriteBlocking::Never)
}
