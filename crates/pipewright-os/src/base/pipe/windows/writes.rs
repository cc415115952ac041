//! Writes that go on after a wait: one that stays with the kernel, and one on a separate thread to an end that is not
//! overlapped, so that no caller blocks on it.
//!
//! Our own stdout is such an end. If its reader stops reading, a write there would block past every
//! deadline; so would text selection in a console.

use std::io::{self, Write as _};
use std::mem;
use std::os::windows::io::{AsHandle as _, AsRawHandle, OwnedHandle};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use windows_sys::Win32::System::IO::CancelSynchronousIo;

use super::{BlockingWrite, WriteEnd, calls};
use crate::base::overlapped::OverlappedIo;
use crate::base::wake::Wake;

/// The pause between attempts to cancel. A thread that has a request but is not yet inside the call
/// has nothing to cancel: then the cancel is repeated a few times.
const CANCEL_PAUSE: Duration = Duration::from_millis(1);
const MAX_CANCELS: u32 = 10;

const STACK_BYTES: usize = 128 << 10;

/// The writing thread. It ends when this is dropped, or after its last write.
#[derive(Debug)]
pub(crate) struct WriterThread {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    target: WriterTarget,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct WriterTarget {
    pub(super) write: BlockingWrite,
    /// The most that is written at once.
    pub(super) max_bytes: usize,
    /// True if a write can be cancelled. A console still shows a cancelled write later.
    pub(super) can_cancel: bool,
    /// True for the handle that this program itself prints to.
    pub(super) is_stdout: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queued: Option<(WriteRequest, Arc<Wake>)>,
    /// The write in progress, or the finished one. A write that could not be cancelled stays here:
    /// a request for the same bytes only waits for it.
    current: Option<WriteRequest>,
    /// Raised at its end, if a caller waits for that.
    event: Option<Arc<Wake>>,
    result: Option<io::Result<usize>>,
    /// A cancel was tried without effect.
    cancel_failed: bool,
    is_closed: bool,
}

/// The bytes from an offset on.
#[derive(Debug, Clone)]
pub(crate) struct WriteRequest {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) from: usize,
}

impl WriterThread {
    pub(super) fn new(handle: OwnedHandle, target: WriterTarget) -> io::Result<WriterThread> {
        let shared = Arc::<Shared>::default();
        let for_thread = Arc::clone(&shared);
        let builder = thread::Builder::new().name("pipewright-write".to_owned());
        let work = move || for_thread.run(&handle, target);
        let thread = builder.stack_size(STACK_BYTES).spawn(work)?;
        Ok(WriterThread { shared, thread, target })
    }

    /// Starts a write; the event is raised when it is done.
    pub(crate) fn start(&self, request: WriteRequest, event: Arc<Wake>) {
        let mut state = self.shared.lock();
        if state.current.as_ref().is_some_and(|current| current.begins(&request, self.target)) {
            if state.result.is_some() {
                event.raise();
            }
            state.event = Some(event);
            return;
        }
        // An earlier write was abandoned, and its result is not needed.
        state = self.cancel(state);
        let _ = state.take_result();
        state.queued = Some((request, event));
        self.shared.changed.notify_all();
    }

    /// Takes the result of the write; `None`: it is not done.
    pub(crate) fn result(&self) -> Option<io::Result<usize>> {
        self.shared.lock().take_result()
    }

    /// Leaves the write and its result to the thread: a request for the same write will wait for
    /// it. Withdraws a write that the thread has not started.
    pub(crate) fn detach(&self) {
        let mut state = self.shared.lock();
        if state.queued.take().is_none() {
            state.event = None;
        }
    }

    /// Cancels the write if it is not done. `None`: it has not started, or could not be cancelled;
    /// then it goes on, and a request for the same write will wait for it.
    fn stop(&self) -> Option<io::Result<usize>> {
        let mut state = self.shared.lock();
        if state.queued.take().is_some() {
            return None;
        }
        self.cancel(state).take_result()
    }

    /// Ends the thread: now, or after a write in progress that cannot be cancelled.
    pub(super) fn close(&self) {
        // Ignored: no caller needs the result any more.
        let _ = self.stop();
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
    }

    /// Cancels the write in progress.
    fn cancel<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        // A write that took no cancel may not have been inside the call yet: each later attempt
        // tries once more. Otherwise it could wait for its reader for ever, and keep the pipe open.
        let attempts = if state.cancel_failed { 1 } else { MAX_CANCELS };
        for _ in 0..attempts {
            if state.current.is_none() || state.result.is_some() || !self.target.can_cancel {
                break;
            }
            // Ignored: the thread is not in the call yet, or has just left it. SAFETY: an open
            // thread.
            let _ = unsafe { CancelSynchronousIo(self.thread.as_raw_handle()) };
            let waited = self.shared.changed.wait_timeout(state, CANCEL_PAUSE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.event = None;
        state.cancel_failed = state.current.is_some() && state.result.is_none();
        state
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.close();
    }
}

impl WriteRequest {
    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }

    pub(super) fn is_same(&self, other: &WriteRequest) -> bool {
        self.from == other.from && Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    fn piece(&self, target: WriterTarget) -> &[u8] {
        let bytes = self.rest();
        bytes.get(..target.max_bytes).unwrap_or(bytes)
    }

    /// Returns true if a write of the other request begins with the bytes of this one.
    fn begins(&self, other: &WriteRequest, target: WriterTarget) -> bool {
        self.is_same(other) || other.rest().starts_with(self.piece(target))
    }
}

impl State {
    fn take_result(&mut self) -> Option<io::Result<usize>> {
        let result = self.result.take()?;
        self.current = None;
        Some(result)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Consistent at any time: its parts are only ever replaced.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, handle: &OwnedHandle, target: WriterTarget) {
        while let Some(request) = self.next() {
            if target.is_stdout {
                // First flush the text that this program has printed. Ignored: the write reports
                // the error.
                let _ = io::stdout().flush();
            }
            let result = (target.write)(handle, request.piece(target));
            let mut state = self.lock();
            if state.queued.is_none() {
                state.result = Some(result);
            } else {
                // The result is not needed any more.
                state.current = None;
            }
            let event = mem::take(&mut state.event);
            self.changed.notify_all();
            drop(state);
            if let Some(event) = event {
                event.raise();
            }
        }
    }

    /// Waits for the next write; `None`: the thread has to end.
    fn next(&self) -> Option<WriteRequest> {
        let mut state = self.lock();
        loop {
            if let Some((request, event)) = state.queued.take() {
                state.current = Some(request.clone());
                state.event = Some(event);
                state.result = None;
                state.cancel_failed = false;
                return Some(request);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

// A cancelled write does not report how much of it was read: a read can cross from earlier bytes
// into those of a pending write, and the cancel then discards the rest and reports nothing.
// Sending the bytes again would send that part twice. So a started write stays pending until it is
// done. It is cancelled only when the pipe end is abandoned.

/// A pending write.
///
/// # Drop
/// Cancels the write, and waits until the kernel has released the bytes.
#[derive(Debug)]
pub(super) struct PendingWrite {
    /// Dropped before the bytes that the kernel reads and the event that it sets.
    operation: OverlappedIo,
    request: WriteRequest,
    /// The number of bytes that it writes.
    count: usize,
    _event: Arc<Wake>,
}

impl PendingWrite {
    /// Returns true if a write of those bytes begins with this write.
    fn begins(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(self.piece())
    }

    fn piece(&self) -> &[u8] {
        self.request.rest().get(..self.count).unwrap_or_default()
    }
}

impl WriteEnd {
    /// Returns the event that is set when the pending write is done.
    pub(crate) fn event(&self) -> io::Result<Arc<Wake>> {
        if let Some(event) = self.event.get() {
            return Ok(Arc::clone(event));
        }
        let event = Arc::new(Wake::new()?);
        Ok(Arc::clone(self.event.get_or_init(|| event)))
    }

    /// Starts to write as much as one write may take, or continues a pending write of the same
    /// bytes.
    ///
    /// Cancels a pending write of other bytes.
    pub(crate) fn start_write(&self, request: WriteRequest) -> io::Result<()> {
        let event = self.event()?;
        let mut place = self.pending();
        let is_same_write = |pending: &PendingWrite| {
            pending.request.is_same(&request) || pending.begins(request.rest())
        };
        if place.as_ref().is_some_and(is_same_write) {
            return Ok(());
        }
        *place = None;
        let piece = self.piece(request.rest());
        let (from, count) = (piece.as_ptr(), piece.len());
        let room = calls::room(self.handle.as_handle());
        // SAFETY: the end keeps the file open, and drops this first. The bytes are shared, so they
        // do not change, and the event is stored beside them.
        let operation =
            unsafe { OverlappedIo::write_outliving_thread(self.raw(), &event, from, count, room) };
        *place = Some(PendingWrite { operation, request, count, _event: event });
        Ok(())
    }

    /// Takes the result of the pending write. `None`: it is not done.
    pub(crate) fn take_result(&self) -> Option<io::Result<usize>> {
        let mut place = self.pending();
        let result = place.as_ref()?.operation.result()?;
        *place = None;
        Some(result)
    }

    /// Takes the result of the pending write if those bytes begin with it. Cancels a pending write
    /// of other bytes.
    ///
    /// # Errors
    /// `WouldBlock`: it is not done.
    pub(super) fn take_result_for(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let mut place = self.pending();
        let pending = place.as_ref()?;
        if !pending.begins(bytes) {
            *place = None;
            return None;
        }
        let would_block = || Err(io::ErrorKind::WouldBlock.into());
        let result = pending.operation.result();
        if result.is_some() {
            *place = None;
        }
        Some(result.unwrap_or_else(would_block))
    }

    /// Waits for the pending write if those bytes begin with it, and takes its result.
    pub(super) fn wait_for_pending(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        // Without the lock: other threads may query meanwhile.
        let mut pending = self.pending().take()?;
        pending.begins(bytes).then(|| pending.operation.wait())
    }

    /// Cancels the pending write, of the kernel or of the writer thread.
    pub(super) fn cancel_pending(&self) {
        *self.pending() = None;
        if let Some(writer_thread) = self.writer_thread.get() {
            writer_thread.close();
        }
    }

    fn pending(&self) -> MutexGuard<'_, Option<PendingWrite>> {
        // Consistent at any time: it is only ever replaced.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use windows_sys::Win32::Foundation::ERROR_OPERATION_ABORTED;

    use super::*;
    use crate::base::pipe::windows::calls::{write_now, write_overlapped};
    use crate::base::pipe::{Mode, PipeOptions, PipeReader, pair};

    const HOLDS: usize = 16 << 10;

    /// Returns a thread that does not cancel, and a full pipe as its target.
    fn uncancellable() -> (PipeReader, WriterThread) {
        full(WriterTarget { write: write_now, max_bytes: 100, can_cancel: false, is_stdout: false })
    }

    fn full(target: WriterTarget) -> (PipeReader, WriterThread) {
        let options = PipeOptions { capacity: Some(HOLDS), ..PipeOptions::default() };
        let (reader, writer) = pair(options).unwrap();
        (&writer).write_all(&[b'.'; HOLDS]).unwrap();
        (reader, WriterThread::new(writer.into(), target).unwrap())
    }

    fn request(text: &str) -> WriteRequest {
        WriteRequest { bytes: Arc::new(text.as_bytes().to_vec()), from: 0 }
    }

    fn event() -> Arc<Wake> {
        Arc::new(Wake::new().unwrap())
    }

    fn wait_until_started(writer_thread: &WriterThread) {
        while writer_thread.shared.lock().queued.is_some() {
            thread::yield_now();
        }
    }

    fn result(writer_thread: &WriterThread, event: &Wake) -> usize {
        crate::base::wait::any(&mut [crate::base::wait::Slot::Event(event)], None).unwrap();
        writer_thread.result().unwrap().unwrap()
    }

    fn rest(mut reader: PipeReader, writer_thread: WriterThread) -> String {
        drop(writer_thread);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text.trim_start_matches('.').to_owned()
    }

    #[test]
    fn an_uncancellable_write_is_continued() {
        let (mut reader, writer_thread) = uncancellable();
        writer_thread.start(request("one"), event());
        wait_until_started(&writer_thread);
        assert!(writer_thread.stop().is_none());
        // A longer text, which begins with the pending one.
        let second = event();
        writer_thread.start(request("one two"), Arc::clone(&second));
        assert!(writer_thread.result().is_none());
        reader.read_exact(&mut [0; HOLDS]).unwrap();
        assert_eq!(result(&writer_thread, &second), 3);
        let third = event();
        writer_thread.start(WriteRequest { from: 3, ..request("one two") }, Arc::clone(&third));
        assert_eq!(result(&writer_thread, &third), 4);
        assert_eq!(rest(reader, writer_thread), "one two");
    }

    #[test]
    fn the_result_of_an_unattended_write_goes_to_the_next_request() {
        let (mut reader, writer_thread) = uncancellable();
        writer_thread.start(request("one"), event());
        wait_until_started(&writer_thread);
        assert!(writer_thread.stop().is_none());
        reader.read_exact(&mut [0; HOLDS]).unwrap();
        reader.read_exact(&mut [0; 3]).unwrap();
        let second = event();
        writer_thread.start(request("one"), Arc::clone(&second));
        assert_eq!(result(&writer_thread, &second), 3);
        assert_eq!(rest(reader, writer_thread), "");
    }

    #[test]
    fn a_detached_write_continues_and_keeps_its_result() {
        let target =
            WriterTarget { write: write_now, max_bytes: 100, can_cancel: true, is_stdout: false };
        let (mut reader, writer_thread) = full(target);
        writer_thread.start(request("one"), event());
        wait_until_started(&writer_thread);
        writer_thread.detach();
        reader.read_exact(&mut [0; HOLDS]).unwrap();
        // No request has been made since.
        let mut taken = [0; 3];
        reader.read_exact(&mut taken).unwrap();
        assert_eq!(taken, *b"one");
        writer_thread.detach();
        let again = event();
        writer_thread.start(request("one two"), Arc::clone(&again));
        assert_eq!(result(&writer_thread, &again), 3);
        assert_eq!(rest(reader, writer_thread), "");
    }

    #[test]
    fn other_bytes_follow_an_uncancellable_write() {
        let (mut reader, writer_thread) = uncancellable();
        writer_thread.start(request("one"), event());
        wait_until_started(&writer_thread);
        assert!(writer_thread.stop().is_none());
        let second = event();
        writer_thread.start(request("other"), Arc::clone(&second));
        assert!(writer_thread.stop().is_none(), "the thread has started it");
        writer_thread.start(request("other"), Arc::clone(&second));
        reader.read_exact(&mut [0; HOLDS]).unwrap();
        assert_eq!(result(&writer_thread, &second), 5);
        assert_eq!(rest(reader, writer_thread), "oneother");
    }

    #[test]
    fn a_cancel_that_came_too_early_is_repeated() {
        let (reader, writer_thread) = full(WriterTarget {
            write: write_now,
            max_bytes: 100,
            can_cancel: true,
            is_stdout: true,
        });
        // The lock on stdout keeps the thread from the call.
        let printing = io::stdout().lock();
        writer_thread.start(request("one"), event());
        wait_until_started(&writer_thread);
        assert!(writer_thread.stop().is_none());
        drop(printing);
        let result = (0..10_000).find_map(|_| {
            writer_thread.start(request("one"), event());
            writer_thread.stop()
        });
        let result = result.expect("it is never cancelled").unwrap_err();
        assert_eq!(result.raw_os_error(), Some(ERROR_OPERATION_ABORTED as i32));
        assert_eq!(rest(reader, writer_thread), "");
    }

    #[test]
    fn an_end_of_unknown_mode_is_written_to_in_either_mode() {
        for write in [Mode::Sync, Mode::Async] {
            let (reader, writer) = pair(PipeOptions { write, ..PipeOptions::default() }).unwrap();
            let target = WriterTarget {
                write: write_overlapped,
                max_bytes: 2,
                can_cancel: false,
                is_stdout: false,
            };
            let writer_thread = WriterThread::new(writer.into(), target).unwrap();
            let done = event();
            writer_thread.start(request("one"), Arc::clone(&done));
            assert_eq!(result(&writer_thread, &done), 2, "{write:?}");
            assert_eq!(rest(reader, writer_thread), "on");
        }
    }
}
