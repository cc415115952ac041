//! Pipes are named pipes; [`Mode::Async`](super::Mode::Async) is an overlapped end.

mod calls;
mod make;
#[cfg(test)]
mod npfs;
mod pending;
mod relay;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::mem;
use std::os::windows::io::{
    AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle as _, OwnedHandle, RawHandle,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use windows_sys::Win32::Foundation::HANDLE;

use super::{PipeOptions, PipeReader, PipeWriter};
use crate::base::handle::{Handle, ask, copy_of, number_of, overlaps};
use crate::base::wake::Wake;

pub(crate) use calls::{MOST_READ_BYTES, of_read, of_write};
pub(super) use calls::{has_room, read, read_spare, try_read_spare, try_write, write};
#[cfg(feature = "ipc")]
pub(crate) use make::duplex;
use pending::Pending;
use relay::Kind;
pub(crate) use relay::{Job, Relay};
use state::Waits;
#[cfg(feature = "ipc")]
pub(crate) use state::room;

pub(super) struct Reader {
    handle: OwnedHandle,
    overlapped: bool,
}

pub(super) struct Writer {
    /// Exchanged by a hang-up; whoever is writing meanwhile keeps the end that it writes to.
    end: Mutex<Arc<WriteEnd>>,
}

#[derive(Debug)]
pub(crate) struct WriteEnd {
    /// The write that was begun. Dropped before the handle.
    pending: Mutex<Option<Pending>>,
    /// Made when a write is left to the kernel.
    event: OnceLock<Arc<Wake>>,
    handle: OwnedHandle,
    waits: Waits,
    /// The number of bytes that the pipe holds, and the most that one write takes: the kernel copies the
    /// whole of a write that waits.
    holds_bytes: usize,
    /// It is where this program itself prints.
    is_stdout: bool,
    /// Made when a write may have to be waited for and cannot be left to the kernel.
    relay: OnceLock<Relay>,
}

type WriteAndWait = fn(&OwnedHandle, &[u8]) -> io::Result<usize>;

pub(super) fn pair(options: PipeOptions) -> io::Result<(PipeReader, PipeWriter)> {
    use super::Mode::Async;
    let ends = make::pair(options)?;
    let reader = Reader { handle: ends.read, overlapped: options.read == Async };
    let waits = if options.write == Async { Waits::Overlapped } else { Waits::InTheCall };
    let writer = WriteEnd::new(ends.write, waits, ends.bytes as usize);
    Ok((PipeReader(reader), PipeWriter(Writer::new(writer))))
}

impl Reader {
    fn raw(&self) -> HANDLE {
        self.handle.as_raw_handle()
    }
}

impl PipeReader {
    /// Whether a read can be left to the kernel.
    pub(crate) fn overlaps(&self) -> bool {
        self.0.overlapped
    }
}

impl PipeWriter {
    /// The end as it is now.
    pub(crate) fn end(&self) -> Arc<WriteEnd> {
        self.0.end()
    }
}

impl Writer {
    fn new(end: WriteEnd) -> Writer {
        Writer { end: Mutex::new(Arc::new(end)) }
    }

    fn end(&self) -> Arc<WriteEnd> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<WriteEnd>> {
        // A pointer, which is whole at any time.
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn into_handle(self) -> OwnedHandle {
        let end = self.end.into_inner().unwrap_or_else(PoisonError::into_inner);
        match Arc::try_unwrap(end) {
            Ok(end) => end.handle,
            // The wait of a task has begun a write to it, and has not been asked again since.
            Err(end) => {
                end.give_up();
                // SAFETY: whoever else has the end only drops it, and it is never dropped now: so nobody else
                // uses or closes the handle.
                let handle = unsafe { OwnedHandle::from_raw_handle(end.raw()) };
                mem::forget(end);
                handle
            }
        }
    }
}

impl WriteEnd {
    fn new(handle: OwnedHandle, waits: Waits, holds_bytes: usize) -> WriteEnd {
        let (pending, event, relay) = (Mutex::default(), OnceLock::new(), OnceLock::new());
        WriteEnd { pending, event, handle, waits, holds_bytes, is_stdout: false, relay }
    }

    pub(crate) fn raw(&self) -> HANDLE {
        self.handle.as_raw_handle()
    }

    /// Whether a write can be left to the kernel.
    pub(crate) fn overlaps(&self) -> bool {
        self.waits == Waits::Overlapped
    }

    /// How to write to it, if there is time to wait for that.
    fn write_and_wait(&self) -> WriteAndWait {
        match self.waits {
            // A struct for the answer that stays is right for both kinds. A call without one on an end
            // that overlaps can return before the kernel is done with what it was given.
            Waits::Overlapped | Waits::Untold => calls::write_overlapped,
            Waits::InTheCall | Waits::InTheConsole | Waits::Never => calls::write_now,
        }
    }

    /// As much of the bytes as one write may take.
    pub(crate) fn piece<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(..self.holds_bytes).unwrap_or(bytes)
    }

    fn of(handle: OwnedHandle) -> WriteEnd {
        let told = |handle: BorrowedHandle<'_>| (state::waits(handle), state::holds_bytes(handle));
        let untold = (Waits::Untold, state::UNTOLD_BYTES);
        let (waits, holds_bytes) = ask::about(handle.as_handle(), told).unwrap_or(untold);
        WriteEnd::new(handle, waits, holds_bytes)
    }

    /// The thread that writes to it. `None`: none is needed, as it does not wait, or none can be had.
    pub(crate) fn relay(&self) -> Option<&Relay> {
        let cancels = match self.waits {
            Waits::InTheCall => true,
            // The second may be a console too.
            Waits::InTheConsole | Waits::Untold => false,
            Waits::Overlapped | Waits::Never => return None,
        };
        if self.relay.get().is_none() {
            let write = self.write_and_wait();
            let kind =
                Kind { write, most_bytes: self.holds_bytes, cancels, is_stdout: self.is_stdout };
            let relay = copy_of(self.raw(), false).and_then(|copy| Relay::new(copy, kind));
            // Ignored: another thread was faster, and its relay serves as well.
            let _ = self.relay.set(relay.ok()?);
        }
        self.relay.get()
    }
}

pub(super) fn hang_up(writer: &Writer) -> io::Result<()> {
    let (reader, broken) = pair(PipeOptions::default())?;
    drop(reader);
    *writer.lock() = broken.0.end();
    Ok(())
}

pub(super) fn available(reader: &Reader) -> io::Result<usize> {
    state::available(reader.handle.as_handle())
}

pub(super) fn unread(_: &Writer) -> io::Result<usize> {
    // The kernel tells the writer how much room is left, and counts as taken what a reader that
    // waits has asked for. That would be a number, and not this one.
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn clone_reader(reader: &Reader) -> io::Result<Reader> {
    Ok(Reader { handle: copy_of(reader.raw(), false)?, overlapped: reader.overlapped })
}

pub(super) fn clone_writer(writer: &Writer) -> io::Result<Writer> {
    let end = writer.end();
    let handle = copy_of(end.raw(), false)?;
    Ok(Writer::new(WriteEnd::new(handle, end.waits, end.holds_bytes)))
}

pub(super) fn reader_number(reader: &Reader) -> i64 {
    number_of(reader.raw())
}

pub(super) fn writer_number(writer: &Writer) -> i64 {
    number_of(writer.end().raw())
}

impl AsHandle for PipeReader {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.0.handle.as_handle()
    }
}

impl AsRawHandle for PipeReader {
    fn as_raw_handle(&self) -> RawHandle {
        self.0.raw()
    }
}

/// No `AsHandle`: a hang-up closes the handle while others hold references to the writer.
impl AsRawHandle for PipeWriter {
    fn as_raw_handle(&self) -> RawHandle {
        self.0.end().raw()
    }
}

impl From<OwnedHandle> for PipeReader {
    fn from(handle: OwnedHandle) -> Self {
        // No answer: only a synchronous one makes anybody wait.
        let overlapped = ask::about(handle.as_handle(), overlaps).unwrap_or(false);
        PipeReader(Reader { handle, overlapped })
    }
}

impl PipeWriter {
    /// Our own stdout, or stderr.
    pub(crate) fn to_console(handle: OwnedHandle, is_stdout: bool) -> PipeWriter {
        let end = WriteEnd { is_stdout, ..WriteEnd::of(handle) };
        PipeWriter(Writer::new(end))
    }
}

impl From<OwnedHandle> for PipeWriter {
    fn from(handle: OwnedHandle) -> Self {
        PipeWriter(Writer::new(WriteEnd::of(handle)))
    }
}

impl From<Handle> for PipeReader {
    fn from(handle: Handle) -> Self {
        PipeReader::from(OwnedHandle::from(handle))
    }
}

impl From<Handle> for PipeWriter {
    fn from(handle: Handle) -> Self {
        PipeWriter::from(OwnedHandle::from(handle))
    }
}

impl From<PipeReader> for OwnedHandle {
    fn from(reader: PipeReader) -> Self {
        reader.0.handle
    }
}

impl From<PipeWriter> for OwnedHandle {
    fn from(writer: PipeWriter) -> Self {
        writer.0.into_handle()
    }
}

impl From<PipeReader> for Handle {
    fn from(reader: PipeReader) -> Self {
        handle_of(reader.0.overlapped, OwnedHandle::from(reader))
    }
}

impl From<PipeWriter> for Handle {
    fn from(writer: PipeWriter) -> Self {
        let overlaps = writer.end().overlaps();
        handle_of(overlaps, OwnedHandle::from(writer))
    }
}

fn handle_of(overlaps: bool, handle: OwnedHandle) -> Handle {
    if overlaps { Handle::from(handle) } else { Handle::of_synchronous(handle) }
}
