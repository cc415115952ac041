//! The inbox of a driver: jobs and messages from other threads, which wake it; and the thread that reads the input.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use pipewright_os::base::generation::Generation;

use crate::job::Job;
use crate::source::InputError;

/// Jobs that the reading thread may be ahead.
const MOST_JOBS: usize = 256;

/// Bytes of their standard inputs, above which the reading thread waits. The driver takes no more of them while the
/// jobs that wait in it have so many.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// A message from another thread.
#[derive(Debug)]
pub(super) enum Message {
    /// Start nothing new.
    Drain,
    /// Stop everything.
    Stop,
    /// The log, the output or the jobserver has something to report.
    Look,
}

/// An entry of the input.
#[derive(Debug)]
pub(super) enum Input {
    Job(Box<Job>),
    Failed(InputError),
    Ended,
}

impl Input {
    /// Returns the bytes of the standard input of a job.
    fn bytes(&self) -> usize {
        match self {
            Input::Job(job) => job.get_stdin().len(),
            _ => 0,
        }
    }
}

/// Makes an executor return from its wait.
pub(super) type Waker = Box<dyn Fn() + Send + Sync>;

/// The inbox. All parts are under one lock, so that no arrival is missed.
pub(super) struct Inbox {
    state: Mutex<State>,
    /// The driver waits here if nothing runs.
    arrived: Condvar,
    /// The reading thread waits here if it is too far ahead.
    has_room: Condvar,
    wake_executor: Waker,
    /// The process that has the driver. In a fork of it, another thread may have had the lock, for ever.
    made_in: Generation,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Message>,
    input: VecDeque<Input>,
    /// The bytes of the standard inputs of these jobs.
    input_bytes: usize,
    waiting: Waiting,
    /// The driver waits for input, too.
    wants_input: bool,
    /// The driver is gone, so the reading thread has to end.
    is_closed: bool,
}

/// The place where the driver waits.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    #[default]
    No,
    Here,
    InExecutor,
}

impl State {
    /// Returns true if the driver is too far behind.
    fn is_full(&self) -> bool {
        self.input.len() >= MOST_JOBS || self.input_bytes >= MOST_BYTES
    }
}

impl Inbox {
    pub(super) fn new(wake_executor: Waker) -> Inbox {
        let (arrived, has_room) = (Condvar::new(), Condvar::new());
        let made_in = Generation::current();
        Inbox { state: Mutex::default(), arrived, has_room, wake_executor, made_in }
    }

    /// Sends a message to the driver. Those of a fork are none.
    pub(super) fn send(&self, message: Message) {
        if !self.made_in.is_current() {
            return;
        }
        let mut state = self.state();
        state.messages.push_back(message);
        self.wake(state);
    }

    /// Adds an entry of the input. Waits while the driver is too far behind. Returns false once the driver is gone.
    pub(super) fn add_input(&self, input: Input) -> bool {
        let mut state = self.state();
        while state.is_full() && !state.is_closed {
            state = self.has_room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return false;
        }
        state.input_bytes += input.bytes();
        state.input.push_back(input);
        if state.wants_input {
            self.wake(state);
        }
        true
    }

    /// Takes the next message.
    pub(super) fn next_message(&self) -> Option<Message> {
        self.state().messages.pop_front()
    }

    /// Takes the next entry of the input, if it has arrived.
    pub(super) fn next_input(&self) -> Option<Input> {
        let mut state = self.state();
        let next = state.input.pop_front();
        let bytes = next.as_ref().map_or(0, Input::bytes);
        state.input_bytes -= bytes;
        if state.input.len() == MOST_JOBS / 2 || bytes > 0 {
            self.has_room.notify_one();
        }
        next
    }

    /// Waits for an arrival, but no longer than `until`. For a driver whose executor runs nothing.
    pub(super) fn wait(&self, wants_input: bool, until: Option<Instant>) {
        let mut state = self.state();
        while !has_arrived(&state, wants_input) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            (state.waiting, state.wants_input) = (Waiting::Here, wants_input);
            state = match left {
                Some(left) => {
                    let waited = self.arrived.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        (state.waiting, state.wants_input) = (Waiting::No, false);
    }

    /// Returns true if the driver may wait in its executor, which an arrival then wakes. Call [`Self::leave_executor`]
    /// afterwards.
    pub(super) fn enter_executor(&self, wants_input: bool) -> bool {
        let mut state = self.state();
        let may_wait = !has_arrived(&state, wants_input);
        if may_wait {
            (state.waiting, state.wants_input) = (Waiting::InExecutor, wants_input);
        }
        may_wait
    }

    pub(super) fn leave_executor(&self) {
        let mut state = self.state();
        (state.waiting, state.wants_input) = (Waiting::No, false);
    }

    /// Ends the reading thread.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.input.clear();
        drop(state);
        self.has_room.notify_one();
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        match waiting {
            Waiting::No => {}
            Waiting::Here => self.arrived.notify_one(),
            Waiting::InExecutor => (self.wake_executor)(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The queues are consistent between calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_arrived(state: &State, wants_input: bool) -> bool {
    !state.messages.is_empty() || wants_input && !state.input.is_empty()
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("state", &self.state).finish_non_exhaustive()
    }
}

// The thread that reads the input, so that a slow one holds up nothing.

/// Starts the thread. It ends with the input, with the first error, or when the driver is gone and an entry arrives: a
/// read that waits for a terminal or a pipe cannot be ended from outside.
pub(super) fn start_reader<I>(inbox: Arc<Inbox>, jobs: I) -> io::Result<()>
where
    I: Iterator<Item = Result<Job, InputError>> + Send + 'static,
{
    let read = move || {
        for job in jobs {
            let (input, is_last) = match job {
                Ok(job) => (Input::Job(Box::new(job)), false),
                Err(error) => (Input::Failed(error), true),
            };
            if !inbox.add_input(input) || is_last {
                return;
            }
        }
        inbox.add_input(Input::Ended);
    };
    thread::Builder::new().name("input".to_owned()).stack_size(256 << 10).spawn(read).map(drop)
}
