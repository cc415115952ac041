//! Notifications that a token may be there, by a thread that waits for one without taking it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pipewright_os::base::service_thread;
use pipewright_os::base::token_pipe::TokenPipe;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::Wake;

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

    pub(super) fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::from(waker));
    }

    /// Requests one call of the waker, when a token can be taken. Does nothing without a waker.
    pub(super) fn arm(&self) -> io::Result<()> {
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
