//! One call on an end: made, waited for, and understood.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF, ERROR_MORE_DATA, ERROR_NO_DATA, ERROR_OPERATION_ABORTED,
    ERROR_PIPE_NOT_CONNECTED,
};
use windows_sys::Win32::Storage::FileSystem::{ReadFile, WriteFile};

use super::state::{self, Waits};
use super::{Reader, Writer, available};
use crate::base::errno::os_error;
use crate::base::overlapped::{Operation, at_most};
use crate::base::wake::Wake;

/// The most that one read asks for, where the room is ours to choose.
pub(crate) const MOST_READ_BYTES: usize = 128 << 10;

/// What has come of a read: that many bytes, 0 at the end. `None`: nothing, and there may be more.
pub(crate) fn of_read(
    file: BorrowedHandle<'_>,
    result: io::Result<usize>,
) -> Option<io::Result<usize>> {
    match result {
        // Somebody has written nothing; at the end of a pipe there would be an error.
        Ok(0) if state::is_open_pipe(file) => None,
        Ok(count) => Some(Ok(count)),
        Err(error) => match error.raw_os_error().map(|code| code as u32) {
            Some(ERROR_BROKEN_PIPE | ERROR_HANDLE_EOF | ERROR_PIPE_NOT_CONNECTED) => Some(Ok(0)),
            Some(ERROR_OPERATION_ABORTED) => None,
            _ => Some(Err(error)),
        },
    }
}

/// The result of a write. One that somebody else has cancelled is an error, and not made again: some of its
/// bytes may have been read.
pub(crate) fn of_write(result: io::Result<usize>) -> io::Result<usize> {
    result.map_err(|error| match error.raw_os_error().map(|code| code as u32) {
        // One fact, three numbers, of which std knows two.
        Some(ERROR_NO_DATA | ERROR_PIPE_NOT_CONNECTED) => os_error(ERROR_BROKEN_PIPE),
        _ => error,
    })
}

pub(in super::super) fn read(reader: &Reader, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: a live slice, which is the call's own.
    unsafe { read_to(reader, buffer.as_mut_ptr(), buffer.len()) }
}

pub(in super::super) fn read_spare(reader: &Reader, buffer: &mut Vec<u8>) -> io::Result<usize> {
    read_spare_with(buffer, |to, room| {
        // SAFETY: the spare room of a buffer that is borrowed mutably.
        unsafe { read_to(reader, to, room) }
    })
}

pub(in super::super) fn try_read_spare(reader: &Reader, buffer: &mut Vec<u8>) -> io::Result<usize> {
    read_spare_with(buffer, |to, room| {
        // SAFETY: as above.
        unsafe { try_read_to(reader, to, room) }
    })
}

/// Reads into the spare room of a buffer.
fn read_spare_with(
    buffer: &mut Vec<u8>,
    read: impl FnOnce(*mut u8, usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    let room = spare.len().min(MOST_READ_BYTES);
    let count = read(spare.as_mut_ptr().cast(), room)?;
    // SAFETY: the read has filled that many bytes behind the length.
    unsafe { buffer.set_len(buffer.len() + count) };
    Ok(count)
}

/// # Safety
/// There is room for that many bytes, and nobody else uses it.
unsafe fn read_to(reader: &Reader, to: *mut u8, room: usize) -> io::Result<usize> {
    if room == 0 {
        return Ok(0);
    }
    loop {
        let result = if reader.overlapped {
            let event = Wake::new()?;
            // SAFETY: promised by the caller; it is done when `wait` returns.
            unsafe { Operation::read(reader.raw(), &event, to, room) }.wait()
        } else {
            // SAFETY: promised by the caller.
            unsafe { read_now(reader, to, room) }
        };
        if let Some(done) = of_read(reader.handle.as_handle(), result) {
            return done;
        }
    }
}

/// # Safety
/// As [`read_to`].
unsafe fn try_read_to(reader: &Reader, to: *mut u8, room: usize) -> io::Result<usize> {
    if room == 0 {
        return Ok(0);
    }
    if !reader.overlapped {
        // What is no pipe cannot be asked, and has its bytes, or waits for them.
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
        let mut operation = unsafe { Operation::read(reader.raw(), &event, to, room) };
        let Some(result) = operation.stop() else { return Err(io::ErrorKind::WouldBlock.into()) };
        if let Some(done) = of_read(reader.handle.as_handle(), result) {
            return done;
        }
    }
}

/// A synchronous read.
///
/// # Safety
/// As [`read_to`].
unsafe fn read_now(reader: &Reader, to: *mut u8, room: usize) -> io::Result<usize> {
    let mut count = 0;
    // SAFETY: promised by the caller; and a live number.
    let read =
        unsafe { ReadFile(reader.raw(), to, at_most(room), &raw mut count, ptr::null_mut()) };
    match read {
        0 => match io::Error::last_os_error() {
            // Of a message there is more than room: what there was room for has come.
            error if error.raw_os_error() == Some(ERROR_MORE_DATA as i32) => Ok(count as usize),
            error => Err(error),
        },
        _ => Ok(count as usize),
    }
}

pub(in super::super) fn write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
    let end = writer.end();
    if bytes.is_empty() {
        // A reader would be told of it.
        return Ok(0);
    }
    let begun = end.wait_for_begun(bytes);
    of_write(begun.unwrap_or_else(|| end.write_and_wait()(&end.handle, bytes)))
}

/// A write that may overlap, waited for.
pub(super) fn write_overlapped(handle: &OwnedHandle, bytes: &[u8]) -> io::Result<usize> {
    let (raw, event) = (handle.as_raw_handle(), Wake::new()?);
    // SAFETY: an open handle and a live slice; it is done when `wait` returns.
    unsafe { Operation::write(raw, &event, bytes.as_ptr(), bytes.len()) }.wait()
}

/// A synchronous write.
pub(super) fn write_now(handle: &OwnedHandle, bytes: &[u8]) -> io::Result<usize> {
    let (raw, mut count) = (handle.as_raw_handle(), 0);
    let length = at_most(bytes.len());
    // SAFETY: an open handle, a live slice and a live number.
    let written =
        unsafe { WriteFile(raw, bytes.as_ptr(), length, &raw mut count, ptr::null_mut()) };
    match written {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(count as usize),
    }
}

#[cfg(test)]
impl super::WriteEnd {
    /// Straight to the kernel: ours leave such writes out.
    pub(crate) fn write_nothing(&self) {
        write_now(&self.handle, &[]).unwrap();
    }
}

pub(in super::super) fn try_write(writer: &Writer, bytes: &[u8]) -> io::Result<usize> {
    let end = writer.end();
    if !end.overlaps() {
        return write(writer, bytes);
    }
    if bytes.is_empty() {
        // Nothing else is written, so a write that was begun is not given up for it.
        return Ok(0);
    }
    if let Some(done) = end.take_begun(bytes) {
        return of_write(done);
    }
    let (event, would_block) = (Wake::new()?, || Err(io::ErrorKind::WouldBlock.into()));
    let mut piece = end.piece(bytes);
    if let Some(room) = state::room(end.handle.as_handle()) {
        if room == 0 {
            return would_block();
        }
        // As much as is taken at once, so that there is nothing to cancel unless somebody else writes too.
        piece = piece.get(..room).unwrap_or(piece);
    }
    while !piece.is_empty() {
        // SAFETY: a live slice; it is done when `stop` returns.
        let mut operation =
            unsafe { Operation::write(end.raw(), &event, piece.as_ptr(), piece.len()) };
        if let Some(done) = operation.stop() {
            return of_write(done);
        }
        // There is no room for all of it; half of it may fit.
        piece = piece.get(..piece.len() / 2).unwrap_or_default();
    }
    would_block()
}

pub(in super::super) fn has_room(writer: &Writer) -> bool {
    let end = writer.end();
    // What overlaps can always be tried. What the kernel tells of another pipe is not to be had while
    // somebody else waits in a write to it, and counts as full what its reader waits for.
    matches!(end.waits, Waits::Overlapped | Waits::Never)
}
