//! State that threads share. A thread that is attached to the interpreter detaches while it waits for a lock: another one may
//! hold the lock for as long as it waits for a child, and all threads of Python would stand still.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::Python;
use pyo3::sync::MutexExt as _;

/// State behind a lock. While it is locked, no Python code may run, and so no exception may be made (see `Failure`).
///
/// A thread that waits for a child gives the state up every 50 ms and takes it again at once. A mutex alone would mostly give it
/// back to that thread, so others would wait for many such turns: they queue for `turn`, and whoever has it is next.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    turn: Mutex<()>,
    state: Mutex<T>,
}

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Shared<T> {
        Shared { turn: Mutex::new(()), state: Mutex::new(value) }
    }

    /// Returns the state, which no other thread can use.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks in a thread that is attached, regardless of an earlier panic.
    pub(crate) fn lock(&self, py: Python<'_>) -> MutexGuard<'_, T> {
        let _turn = self.turn.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks in a thread that is detached, regardless of an earlier panic.
    pub(crate) fn lock_detached(&self) -> MutexGuard<'_, T> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
