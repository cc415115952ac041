//! Named pipes; [`Mode::Async`](super::Mode::Async) is an overlapped end.

mod calls;
mod console;
mod make;
#[cfg(test)]
mod tests;
mod writes;

use std::os::windows::io::{
    AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle as _, OwnedHandle, RawHandle,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{io, mem};

use windows_sys::Win32::Foundation::HANDLE;

use super::console_text::Question;
use super::{PipeOptions, PipeReader, PipeWriter};
use crate::base::handle::{Handle, copy_of, is_overlapped, number_of, timed_query};
use crate::base::wake::Wake;

use calls::WriteBlocking;
#[cfg(feature = "ipc")]
pub(crate) use calls::room;
pub(crate) use calls::{MOST_READ_BYTES, map_read_result, map_write_result};
pub(super) use calls::{has_room, read, read_spare, try_read_spare, try_write, write};
use console::ConsoleInput;
#[cfg(feature = "ipc")]
pub(crate) use make::duplex;
use writes::{PendingWrite, WriterTarget};
pub(crate) use writes::{WriteRequest, WriterThread};

pub(super) struct Reader {
    handle: OwnedHandle,
    overlapped: bool,
    /// A console, and the text of it that was taken and not read.
    console: Option<Arc<ConsoleInput>>,
    /// The output of a console, whose question is answered.
    answers: Option<Arc<Answers>>,
}

/// The question of a console, and the way for the answer.
struct Answers {
    question: Mutex<Question>,
    to: PipeWriter,
}

pub(super) struct Writer {
    /// Replaced by `close`; a write in progress keeps the end that it writes to.
    end: Mutex<Arc<WriteEnd>>,
}

#[derive(Debug)]
pub(crate) struct WriteEnd {
    /// The pending write. Dropped before the handle.
    pending: Mutex<Option<PendingWrite>>,
    /// Made for the first write that is left to the kernel.
    event: OnceLock<Arc<Wake>>,
    handle: OwnedHandle,
    blocking: WriteBlocking,
    /// The capacity of the pipe, and the most that one write takes: the kernel copies all bytes of
    /// a pending write.
    capacity_bytes: usize,
    /// True for the handle that this program itself prints to.
    is_stdout: bool,
    /// Made for the first write that may block and cannot be left to the kernel.
    writer_thread: OnceLock<WriterThread>,
}

/// The answer to the question of a console: a terminal of the level of a VT220, with colours.
const ANSWER: &[u8] = b"\x1b[?61;22c";

type BlockingWrite = fn(&OwnedHandle, &[u8]) -> io::Result<usize>;

pub(super) fn pair(options: PipeOptions) -> io::Result<(PipeReader, PipeWriter)> {
    use super::Mode::Async;
    let ends = make::pair(options)?;
    let reader = Reader {
        handle: ends.read,
        overlapped: options.read == Async,
        console: None,
        answers: None,
    };
    let blocking =
        if options.write == Async { WriteBlocking::Overlapped } else { WriteBlocking::InCall };
    let writer = WriteEnd::new(ends.write, blocking, ends.bytes as usize);
    Ok((PipeReader(reader), PipeWriter(Writer::new(writer))))
}

impl Reader {
    fn note_read(&self, bytes: &[u8]) {
        let Some(answers) = &self.answers else { return };
        // Consistent between calls.
        let mut question = answers.question.lock().unwrap_or_else(PoisonError::into_inner);
        if !question.is_over() && question.is_asked_by(bytes) {
            // Ignored: nobody has typed yet, so there is room; a console that has ended needs no answer.
            let _ = answers.to.try_write(ANSWER);
        }
    }

    fn raw(&self) -> HANDLE {
        self.handle.as_raw_handle()
    }
}

impl PipeReader {
    /// Returns true if a read can be left to the kernel.
    pub(crate) fn is_overlapped(&self) -> bool {
        self.0.overlapped
    }

    /// Answers the question of the console whose output this is, at its input.
    #[cfg(feature = "process")]
    pub(crate) fn answering(self, to: PipeWriter) -> PipeReader {
        let answers = Answers { question: Mutex::default(), to };
        PipeReader(Reader { answers: Some(Arc::new(answers)), ..self.0 })
    }

    /// Looks at bytes that were read.
    pub(crate) fn note_read(&self, bytes: &[u8]) {
        self.0.note_read(bytes);
    }

    /// Returns the handle that is signalled when something was typed, for a console that edits no lines.
    pub(crate) fn console(&self) -> Option<BorrowedHandle<'_>> {
        let handle = self.0.handle.as_handle();
        self.0.console.as_ref().filter(|_| !console::edits_lines(handle)).map(|_| handle)
    }
}

impl PipeWriter {
    /// Returns the current end.
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
        // A pointer, which is consistent at any time.
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn into_handle(self) -> OwnedHandle {
        let end = self.end.into_inner().unwrap_or_else(PoisonError::into_inner);
        match Arc::try_unwrap(end) {
            Ok(end) => end.handle,
            // The wait of a task has started a write to it, and has not been polled since.
            Err(end) => {
                end.cancel_pending();
                // SAFETY: the other owners of the end only drop it, and `forget` keeps it from
                // being dropped: so nothing else uses or closes the handle.
                let handle = unsafe { OwnedHandle::from_raw_handle(end.raw()) };
                mem::forget(end);
                handle
            }
        }
    }
}

impl WriteEnd {
    fn new(handle: OwnedHandle, blocking: WriteBlocking, capacity_bytes: usize) -> WriteEnd {
        let (pending, event, writer_thread) = (Mutex::default(), OnceLock::new(), OnceLock::new());
        WriteEnd {
            pending,
            event,
            handle,
            blocking,
            capacity_bytes,
            is_stdout: false,
            writer_thread,
        }
    }

    pub(crate) fn raw(&self) -> HANDLE {
        self.handle.as_raw_handle()
    }

    /// Returns true if a write can be left to the kernel.
    pub(crate) fn is_overlapped(&self) -> bool {
        self.blocking == WriteBlocking::Overlapped
    }

    /// Returns the function for a write that may block.
    fn blocking_write(&self) -> BlockingWrite {
        match self.blocking {
            // An overlapped write that is waited for works on both kinds. A plain call on an
            // overlapped end can return while the kernel still uses the buffer.
            WriteBlocking::Overlapped => calls::write_overlapped,
            WriteBlocking::Unknown => calls::write_unknown,
            WriteBlocking::InCall | WriteBlocking::InConsole | WriteBlocking::Never => {
                calls::write_now
            }
        }
    }

    /// Returns the part of the bytes that one write may take.
    pub(crate) fn piece<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(..self.capacity_bytes).unwrap_or(bytes)
    }

    fn of(handle: OwnedHandle) -> WriteEnd {
        let query = |handle: BorrowedHandle<'_>| {
            (calls::write_blocking(handle), calls::capacity_bytes(handle))
        };
        let unknown = (WriteBlocking::Unknown, calls::UNKNOWN_CAPACITY_BYTES);
        let (blocking, capacity_bytes) = timed_query(handle.as_handle(), query).unwrap_or(unknown);
        WriteEnd::new(handle, blocking, capacity_bytes)
    }

    /// Returns the thread that writes to this end. `None`: writes do not block, or no thread can be
    /// started.
    pub(crate) fn writer_thread(&self) -> Option<&WriterThread> {
        let can_cancel = match self.blocking {
            WriteBlocking::InCall => true,
            // An unknown handle may be a console too.
            WriteBlocking::InConsole | WriteBlocking::Unknown => false,
            WriteBlocking::Overlapped | WriteBlocking::Never => return None,
        };
        if self.writer_thread.get().is_none() {
            let write = self.blocking_write();
            let target = WriterTarget {
                write,
                max_bytes: self.capacity_bytes,
                can_cancel,
                is_stdout: self.is_stdout,
            };
            let writer_thread =
                copy_of(self.raw(), false).and_then(|copy| WriterThread::new(copy, target));
            // Ignored: another thread has made one first, which works too.
            let _ = self.writer_thread.set(writer_thread.ok()?);
        }
        self.writer_thread.get()
    }
}

pub(super) fn close(writer: &Writer) -> io::Result<()> {
    let (reader, broken) = pair(PipeOptions::default())?;
    drop(reader);
    *writer.lock() = broken.0.end();
    Ok(())
}

pub(super) fn available(reader: &Reader) -> io::Result<usize> {
    calls::available_in(reader.handle.as_handle())
}

/// Returns `None`: the output of a console comes through a pipe.
pub(super) fn most_buffered_of_terminal(_: &Reader) -> Option<usize> {
    None
}

pub(super) fn unread(_: &Writer) -> io::Result<usize> {
    // The kernel reports how much room is left, and counts space that a waiting reader has
    // requested as used. The difference would be another number.
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn clone_reader(reader: &Reader) -> io::Result<Reader> {
    Ok(Reader {
        handle: copy_of(reader.raw(), false)?,
        overlapped: reader.overlapped,
        console: reader.console.clone(),
        answers: reader.answers.clone(),
    })
}

pub(super) fn clone_writer(writer: &Writer) -> io::Result<Writer> {
    let end = writer.end();
    let handle = copy_of(end.raw(), false)?;
    Ok(Writer::new(WriteEnd::new(handle, end.blocking, end.capacity_bytes)))
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

/// Implements no `AsHandle`: `close` closes the handle while references to the writer remain.
impl AsRawHandle for PipeWriter {
    fn as_raw_handle(&self) -> RawHandle {
        self.0.end().raw()
    }
}

impl From<OwnedHandle> for PipeReader {
    fn from(handle: OwnedHandle) -> Self {
        // No answer: only a synchronous end makes a query wait.
        let overlapped = timed_query(handle.as_handle(), is_overlapped).unwrap_or(false);
        let is_console = !overlapped && console::is_console(handle.as_handle());
        PipeReader(Reader {
            handle,
            overlapped,
            console: is_console.then(Arc::default),
            answers: None,
        })
    }
}

impl PipeWriter {
    /// Returns a writer to this process's stdout or stderr.
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
        let is_overlapped = writer.end().is_overlapped();
        handle_of(is_overlapped, OwnedHandle::from(writer))
    }
}

fn handle_of(is_overlapped: bool, handle: OwnedHandle) -> Handle {
    if is_overlapped { Handle::from(handle) } else { Handle::of_synchronous(handle) }
}
