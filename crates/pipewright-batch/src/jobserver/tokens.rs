//! Tokens of one program: the first is free, and each further one is a byte that was taken and is put back.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::token_pipe::TokenPipe;

use super::notify::Notifier;

/// The tokens that this program has, and the pipe for more.
#[derive(Debug)]
pub(super) struct Tokens {
    shared: Arc<Shared>,
    notifier: Notifier,
}

#[derive(Debug)]
struct Shared {
    /// The process that has the tokens: its fork has the same pipe, and none of them.
    made_in: Generation,
    pipe: Arc<TokenPipe>,
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

    #[cfg(all(test, not(windows)))]
    pub(super) fn pipe(&self) -> &TokenPipe {
        &self.shared.pipe
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
