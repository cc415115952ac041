//! Tokens of one program: the first is free, and each further one is a byte that was taken and is put back. A thread
//! waits for more without taking one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::service_thread;
use pipewright_os::base::token_pipe::TokenPipe;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;

/// The tokens that this program has, and the pipe for more.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) shared: Arc<Shared>,
    notifier: Notifier,
}

#[derive(Debug)]
pub(super) struct Shared {
    /// The process that has the tokens: its fork has the same pipe, and none of them.
    made_in: Generation,
    pub(super) pipe: Arc<TokenPipe>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// True while a job runs on the slot that needs no byte.
    is_free_used: bool,
    /// The bytes that were taken. Each stands for one more job.
    held: Vec<u8>,
}

/// The right to run one job.
///
/// # Drop
/// Puts the byte back, as it was taken; not in a fork. The last token has no byte, whichever was acquired first.
pub(crate) struct Token(Arc<Shared>);

impl Tokens {
    pub(super) fn new(pipe: TokenPipe) -> Tokens {
        let pipe = Arc::new(pipe);
        let (made_in, state) = (Generation::current(), Mutex::default());
        let shared = Shared { made_in, pipe: Arc::clone(&pipe), state };
        Tokens { shared: Arc::new(shared), notifier: Notifier::new(pipe) }
    }

    pub(super) fn try_acquire(&self) -> io::Result<Option<Token>> {
        let mut state = self.shared.state();
        if state.is_free_used {
            // Room first: a byte that was taken must not be lost.
            state.held.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
            let Some(byte) = self.shared.pipe.try_take()? else {
                self.notifier.arm()?;
                return Ok(None);
            };
            state.held.push(byte);
        }
        state.is_free_used = true;
        Ok(Some(Token(Arc::clone(&self.shared))))
    }

    pub(super) fn notify_when_available(&self, waker: Box<dyn Fn() + Send + Sync>) {
        self.notifier.set_waker(waker);
    }

    /// Calls `work` while no token is in use. `None`: one is.
    pub(super) fn while_idle<T>(&self, work: impl FnOnce(&TokenPipe) -> T) -> Option<T> {
        let state = self.shared.state();
        (!state.is_free_used).then(|| work(&self.shared.pipe))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it has the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, byte: u8) {
        // Ignored: the pipe is full, so that nobody lacks a token, or the jobserver has gone.
        let _ = self.pipe.put(byte);
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if !self.0.made_in.is_current() {
            return;
        }
        let mut state = self.0.state();
        match state.held.pop() {
            Some(byte) => self.0.put(byte),
            None => state.is_free_used = false,
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

// Notifications that a token may be there, by a thread that waits for one without taking it.

type Waker = Arc<dyn Fn() + Send + Sync>;

/// A waker, and the thread that calls it. The thread starts at the first request.
pub(super) struct Notifier {
    pipe: Arc<TokenPipe>,
    waker: Mutex<Option<Waker>>,
    thread: Mutex<Option<Arc<Requests>>>,
}

/// The requests to the thread.
struct Requests {
    wake: Wake,
    is_armed: AtomicBool,
    is_ended: AtomicBool,
}

impl Notifier {
    pub(super) fn new(pipe: Arc<TokenPipe>) -> Notifier {
        Notifier { pipe, waker: Mutex::default(), thread: Mutex::default() }
    }

    fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::from(waker));
    }

    /// Requests one call of the waker, when a token can be taken. Does nothing without a waker.
    fn arm(&self) -> io::Result<()> {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(waker) = waker else { return Ok(()) };
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = match &*thread {
            // It ends by itself only if a wait fails.
            Some(requests) if !requests.is_ended.load(Ordering::SeqCst) => requests,
            _ => thread.insert(start(Arc::clone(&self.pipe), waker)?),
        };
        if !requests.is_armed.swap(true, Ordering::SeqCst) {
            requests.wake.raise();
        }
        Ok(())
    }
}

fn start(pipe: Arc<TokenPipe>, waker: Waker) -> io::Result<Arc<Requests>> {
    let requests = Arc::new(Requests {
        wake: Wake::new()?,
        is_armed: AtomicBool::new(false),
        is_ended: AtomicBool::new(false),
    });
    let seen = Arc::clone(&requests);
    service_thread::start_with_default_stack(c"pw-jobserver", move || {
        watch(&pipe, &seen, &*waker);
    })?;
    Ok(requests)
}

fn watch(pipe: &TokenPipe, requests: &Requests, waker: &(dyn Fn() + Send + Sync)) {
    while !requests.is_ended.load(Ordering::SeqCst) {
        let is_armed = requests.is_armed.load(Ordering::SeqCst);
        // A token that nobody wants is not waited for: the wait would return at once.
        let token = if is_armed { Slot::Event(pipe) } else { Slot::Off };
        let mut slots = [Slot::Event(&requests.wake), token];
        let waited = wait::any(&mut slots, None);
        if waited.is_err() {
            // The driver must not wait for a thread that is gone: its next request starts another one.
            requests.is_ended.store(true, Ordering::SeqCst);
        }
        let [woken, token] = slots;
        if matches!(woken, Slot::EventDone) {
            requests.wake.lower();
        }
        let is_there = matches!(token, Slot::EventDone) || waited.is_err();
        if is_there && requests.is_armed.swap(false, Ordering::SeqCst) {
            waker();
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = thread {
            requests.is_armed.store(false, Ordering::SeqCst);
            requests.is_ended.store(true, Ordering::SeqCst);
            requests.wake.raise();
        }
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}
