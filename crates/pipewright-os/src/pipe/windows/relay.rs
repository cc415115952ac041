//! Writes to an end that does not overlap, on a thread of their own: so they can be cancelled.
//!
//! Our own stdout is such an end, if somebody reads from it through a pipe. A reader that does not
//! read would hold up whoever writes there, past every deadline.

use std::io::{self, Write as _};
use std::os::windows::io::AsRawHandle;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use windows_sys::Win32::System::IO::CancelSynchronousIo;

use super::WriteEnd;
use crate::wake::Wake;

/// Between being asked to write and being inside the call there is a moment in which there is
/// nothing to cancel: then it is tried again.
const CANCEL_PAUSE: Duration = Duration::from_millis(1);

const STACK_BYTES: usize = 128 << 10;

/// The thread. It ends when this is dropped, or soon after.
#[derive(Debug)]
pub(crate) struct Relay {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Asked(Job),
    Writing,
    Done(io::Result<usize>),
    /// The thread is to end.
    Over,
}

/// One write.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) end: Arc<WriteEnd>,
    pub(crate) bytes: Arc<Vec<u8>>,
    /// Where in the bytes it begins. As much is written as one write may take.
    pub(crate) from: usize,
    /// Raised when it is done.
    pub(crate) event: Arc<Wake>,
}

impl Relay {
    pub(super) fn new() -> io::Result<Relay> {
        let shared = Arc::<Shared>::default();
        let for_thread = Arc::clone(&shared);
        let builder = thread::Builder::new().name("pipewright-write".to_owned());
        let thread = builder.stack_size(STACK_BYTES).spawn(move || for_thread.work())?;
        Ok(Relay { shared, thread })
    }

    /// Begins a write. The one before has been taken, or stopped.
    pub(crate) fn start(&self, job: Job) {
        self.shared.set(State::Asked(job));
    }

    /// What has come of the write; `None`: it is not done.
    pub(crate) fn result(&self) -> Option<io::Result<usize>> {
        self.shared.lock().take_result()
    }

    /// Cancels the write, if it is not done, and waits until it is. `None`: it was not begun.
    pub(crate) fn stop(&self) -> Option<io::Result<usize>> {
        let mut state = self.shared.lock();
        loop {
            match *state {
                State::Writing => {}
                State::Asked(_) => {
                    *state = State::Idle;
                    return None;
                }
                _ => return state.take_result(),
            }
            // Ignored: it has not come so far, or is just done. SAFETY: an open thread.
            let _ = unsafe { CancelSynchronousIo(self.thread.as_raw_handle()) };
            let waited = self.shared.changed.wait_timeout(state, CANCEL_PAUSE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.stop();
        self.shared.set(State::Over);
    }
}

impl State {
    fn take_result(&mut self) -> Option<io::Result<usize>> {
        match std::mem::take(self) {
            State::Done(result) => Some(result),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whole at any time: it is only ever replaced.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, new: State) {
        *self.lock() = new;
        self.changed.notify_all();
    }

    fn work(&self) {
        while let Some(Job { end, bytes, from, event }) = self.next() {
            let result = end.write_after_ours(bytes.get(from..).unwrap_or_default());
            // Before anybody knows that it is done: whoever has the end then owns it alone.
            drop(end);
            self.set(State::Done(result));
            event.raise();
        }
    }

    /// The next write; `None`: there will be none.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            match std::mem::take(&mut *state) {
                State::Asked(job) => {
                    *state = State::Writing;
                    return Some(job);
                }
                State::Over => return None,
                other => *state = other,
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl WriteEnd {
    /// Writes as much as one write may take, after what this program itself has printed there.
    fn write_after_ours(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_stdout {
            // Ignored: the write below says so.
            let _ = io::stdout().flush();
        }
        self.write_now(self.piece(bytes))
    }
}
