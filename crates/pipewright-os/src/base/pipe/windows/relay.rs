//! Writes to an end that does not overlap, on a thread of their own: nobody has to wait for them.
//!
//! Our own stdout is such an end. Whoever reads it and does not read would hold up whoever writes
//! there, past every deadline; so would somebody who marks text in the console.

use std::io::{self, Write as _};
use std::mem;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use windows_sys::Win32::System::IO::CancelSynchronousIo;

use super::WriteAndWait;
use crate::base::wake::Wake;

/// Between being asked to write and being inside the call there is a moment in which there is
/// nothing to cancel: then it is tried again, some times.
const CANCEL_PAUSE: Duration = Duration::from_millis(1);
const CANCELS: u32 = 10;

const STACK_BYTES: usize = 128 << 10;

/// The thread. It ends when this is dropped, or when its last write has.
#[derive(Debug)]
pub(crate) struct Relay {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    kind: Kind,
}

/// What is written to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) write: WriteAndWait,
    /// The most that is written at once.
    pub(super) most_bytes: usize,
    /// A write can be cancelled. That to a console is shown later all the same.
    pub(super) cancels: bool,
    /// It is where this program itself prints.
    pub(super) is_stdout: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: Option<(Job, Arc<Wake>)>,
    /// What the thread is at, or has done. A write that could not be cancelled stays here: who wants
    /// the same bytes written again has only to wait for it.
    given: Option<Job>,
    /// Raised at the end of it, if somebody waits for that.
    event: Option<Arc<Wake>>,
    result: Option<io::Result<usize>>,
    /// It was tried, and took no cancel.
    stuck: bool,
    over: bool,
}

/// The bytes from that place on.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) from: usize,
}

impl Relay {
    pub(super) fn new(handle: OwnedHandle, kind: Kind) -> io::Result<Relay> {
        let shared = Arc::<Shared>::default();
        let for_thread = Arc::clone(&shared);
        let builder = thread::Builder::new().name("pipewright-write".to_owned());
        let work = move || for_thread.work(&handle, kind);
        let thread = builder.stack_size(STACK_BYTES).spawn(work)?;
        Ok(Relay { shared, thread, kind })
    }

    /// Begins a write; the event is raised when it is done.
    pub(crate) fn start(&self, job: Job, event: Arc<Wake>) {
        let mut state = self.shared.lock();
        if state.given.as_ref().is_some_and(|given| given.is_part_of(&job, self.kind)) {
            if state.result.is_some() {
                event.raise();
            }
            state.event = Some(event);
            return;
        }
        // An earlier one was given up, and its result is wanted by nobody.
        state = self.cancel(state);
        let _ = state.take_result();
        state.asked = Some((job, event));
        self.shared.changed.notify_all();
    }

    /// What has come of the write; `None`: it is not done.
    pub(crate) fn result(&self) -> Option<io::Result<usize>> {
        self.shared.lock().take_result()
    }

    /// Leaves the write to the thread, with its result: it is what the same write will wait for. One that the
    /// thread has not begun is taken back.
    pub(crate) fn leave(&self) {
        let mut state = self.shared.lock();
        if state.asked.take().is_none() {
            state.event = None;
        }
    }

    /// Cancels the write, if it is not done. `None`: it has not begun, or could not be cancelled; then it
    /// goes on, and is what the same write will wait for.
    fn stop(&self) -> Option<io::Result<usize>> {
        let mut state = self.shared.lock();
        if state.asked.take().is_some() {
            return None;
        }
        self.cancel(state).take_result()
    }

    /// Ends the thread, now or after the write that it is at and that takes no cancel.
    pub(super) fn end(&self) {
        // What it has written is told to nobody any more.
        let _ = self.stop();
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
    }

    /// Cancels the write that the thread is at.
    fn cancel<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        // One that took none may only have been too late to be inside the call: it is tried once more
        // each time, or it would wait for its reader for ever, and hold the pipe.
        let cancels = if state.stuck { 1 } else { CANCELS };
        for _ in 0..cancels {
            if state.given.is_none() || state.result.is_some() || !self.kind.cancels {
                break;
            }
            // Ignored: it has not come so far, or is just done. SAFETY: an open thread.
            let _ = unsafe { CancelSynchronousIo(self.thread.as_raw_handle()) };
            let waited = self.shared.changed.wait_timeout(state, CANCEL_PAUSE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.event = None;
        state.stuck = state.given.is_some() && state.result.is_none();
        state
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end();
    }
}

impl Job {
    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }

    pub(super) fn is_same(&self, other: &Job) -> bool {
        self.from == other.from && Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    fn piece(&self, kind: Kind) -> &[u8] {
        let bytes = self.rest();
        bytes.get(..kind.most_bytes).unwrap_or(bytes)
    }

    /// True if to do the other is to begin with this.
    fn is_part_of(&self, other: &Job, kind: Kind) -> bool {
        self.is_same(other) || other.rest().starts_with(self.piece(kind))
    }
}

impl State {
    fn take_result(&mut self) -> Option<io::Result<usize>> {
        let result = self.result.take()?;
        self.given = None;
        Some(result)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whole at any time: its parts are only ever replaced.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, handle: &OwnedHandle, kind: Kind) {
        while let Some(job) = self.next() {
            if kind.is_stdout {
                // First what this program itself has printed there. Ignored: the write says so.
                let _ = io::stdout().flush();
            }
            let result = (kind.write)(handle, job.piece(kind));
            let mut state = self.lock();
            if state.asked.is_none() {
                state.result = Some(result);
            } else {
                // Nobody waits for this one any more.
                state.given = None;
            }
            let event = mem::take(&mut state.event);
            self.changed.notify_all();
            drop(state);
            if let Some(event) = event {
                event.raise();
            }
        }
    }

    /// The next write; `None`: there will be none.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some((job, event)) = state.asked.take() {
                state.given = Some(job.clone());
                state.event = Some(event);
                state.result = None;
                state.stuck = false;
                return Some(job);
            }
            if state.over {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::{write_now, write_overlapped};
    use super::*;
    use crate::base::pipe::{Mode, PipeOptions, PipeReader, pair};
    use std::io::Read as _;
    use windows_sys::Win32::Foundation::ERROR_OPERATION_ABORTED;

    const HOLDS: usize = 16 << 10;

    /// A relay that does not cancel, before a pipe that is full.
    fn stuck() -> (PipeReader, Relay) {
        full(Kind { write: write_now, most_bytes: 100, cancels: false, is_stdout: false })
    }

    fn full(kind: Kind) -> (PipeReader, Relay) {
        let options = PipeOptions { capacity: Some(HOLDS), ..PipeOptions::default() };
        let (reader, writer) = pair(options).unwrap();
        (&writer).write_all(&[b'.'; HOLDS]).unwrap();
        (reader, Relay::new(writer.into(), kind).unwrap())
    }

    fn job(text: &str) -> Job {
        Job { bytes: Arc::new(text.as_bytes().to_vec()), from: 0 }
    }

    fn event() -> Arc<Wake> {
        Arc::new(Wake::new().unwrap())
    }

    fn begun(relay: &Relay) {
        while relay.shared.lock().asked.is_some() {
            thread::yield_now();
        }
    }

    fn result(relay: &Relay, event: &Wake) -> usize {
        crate::base::wait::any(&mut [crate::base::wait::Slot::Event(event)], None).unwrap();
        relay.result().unwrap().unwrap()
    }

    fn rest(mut reader: PipeReader, relay: Relay) -> String {
        drop(relay);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text.trim_start_matches('.').to_owned()
    }

    #[test]
    fn what_cannot_be_cancelled_is_gone_on_with() {
        let (mut reader, relay) = stuck();
        relay.start(job("one"), event());
        begun(&relay);
        assert!(relay.stop().is_none());
        // More than before, of which that is the beginning.
        let second = event();
        relay.start(job("one two"), Arc::clone(&second));
        assert!(relay.result().is_none());
        reader.read_exact(&mut [0; HOLDS]).unwrap();
        assert_eq!(result(&relay, &second), 3);
        let third = event();
        relay.start(Job { from: 3, ..job("one two") }, Arc::clone(&third));
        assert_eq!(result(&relay, &third), 4);
        assert_eq!(rest(reader, relay), "one two");
    }

    #[test]
    fn what_is_done_while_nobody_waits_is_told_to_who_asks_again() {
        let (mut reader, relay) = stuck();
        relay.start(job("one"), event());
        begun(&relay);
        assert!(relay.stop().is_none());
        reader.read_exact(&mut [0; HOLDS]).unwrap();
        reader.read_exact(&mut [0; 3]).unwrap();
        let second = event();
        relay.start(job("one"), Arc::clone(&second));
        assert_eq!(result(&relay, &second), 3);
        assert_eq!(rest(reader, relay), "");
    }

    #[test]
    fn what_is_left_goes_on_and_keeps_its_result() {
        let kind = Kind { write: write_now, most_bytes: 100, cancels: true, is_stdout: false };
        let (mut reader, relay) = full(kind);
        relay.start(job("one"), event());
        begun(&relay);
        relay.leave();
        reader.read_exact(&mut [0; HOLDS]).unwrap();
        // Nobody has asked again.
        let mut taken = [0; 3];
        reader.read_exact(&mut taken).unwrap();
        assert_eq!(taken, *b"one");
        relay.leave();
        let again = event();
        relay.start(job("one two"), Arc::clone(&again));
        assert_eq!(result(&relay, &again), 3);
        assert_eq!(rest(reader, relay), "");
    }

    #[test]
    fn something_else_comes_after_what_could_not_be_cancelled() {
        let (mut reader, relay) = stuck();
        relay.start(job("one"), event());
        begun(&relay);
        assert!(relay.stop().is_none());
        let second = event();
        relay.start(job("other"), Arc::clone(&second));
        assert!(relay.stop().is_none(), "it was not begun");
        relay.start(job("other"), Arc::clone(&second));
        reader.read_exact(&mut [0; HOLDS]).unwrap();
        assert_eq!(result(&relay, &second), 5);
        assert_eq!(rest(reader, relay), "oneother");
    }

    #[test]
    fn what_was_too_late_to_be_cancelled_is_cancelled_the_next_time() {
        let (reader, relay) =
            full(Kind { write: write_now, most_bytes: 100, cancels: true, is_stdout: true });
        // Whoever prints keeps it from the call.
        let printing = io::stdout().lock();
        relay.start(job("one"), event());
        begun(&relay);
        assert!(relay.stop().is_none());
        drop(printing);
        let told = (0..10_000).find_map(|_| {
            relay.start(job("one"), event());
            relay.stop()
        });
        let told = told.expect("it is never cancelled").unwrap_err();
        assert_eq!(told.raw_os_error(), Some(ERROR_OPERATION_ABORTED as i32));
        assert_eq!(rest(reader, relay), "");
    }

    #[test]
    fn an_end_of_which_nothing_is_told_is_written_to_whichever_kind_it_is() {
        for write in [Mode::Sync, Mode::Async] {
            let (reader, writer) = pair(PipeOptions { write, ..PipeOptions::default() }).unwrap();
            let kind =
                Kind { write: write_overlapped, most_bytes: 2, cancels: false, is_stdout: false };
            let relay = Relay::new(writer.into(), kind).unwrap();
            let done = event();
            relay.start(job("one"), Arc::clone(&done));
            assert_eq!(result(&relay, &done), 2, "{write:?}");
            assert_eq!(rest(reader, relay), "on");
        }
    }
}
