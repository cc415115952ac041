//! State between threads, waits and forks: locks that never hold up the GIL, waits without it that see signals, and
//! objects that act only in the process that made them.
//!
//! A thread that is attached to the interpreter detaches while it waits for a lock: another one may hold the lock for
//! as long as it waits for a child, and all threads of Python would stand still.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::Python;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;

use crate::errors::{Failure, raise};

/// State behind a lock. While it is locked, no Python code may run, and so no exception may be made (see `Failure`).
///
/// A thread that waits for a child gives the state up every 50 ms and takes it again at once. A mutex alone would
/// mostly give it back to that thread, so others would wait for many such turns: they queue for `turn`, and the thread
/// that has it is next.
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

/// The process that made an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner(u32);

impl Owner {
    pub(crate) fn this_process() -> Owner {
        Owner(std::process::id())
    }

    /// Returns false in a fork of the process that made the object.
    pub(crate) fn is_here(self) -> bool {
        std::process::id() == self.0
    }

    /// Fails in a fork of the process that made the object.
    pub(crate) fn check(self) -> PyResult<()> {
        let here = std::process::id();
        if here == self.0 {
            return Ok(());
        }
        let message = format!(
            "this child belongs to process {}, and process {here} is a fork of it: \
             start children where they are waited for",
            self.0
        );
        Err(Python::attach(|py| raise(py, "forked", &message, |_| Ok(()))))
    }
}

/// The longest wait before Python's signal handlers get to run. Only a signal that arrives during the wait is delayed
/// by it.
const TICK: Duration = Duration::from_millis(50);

/// Repeats a wait until it returns something, or the time is up (`None`). The wait gets the time that it may take.
pub(crate) fn repeat<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    wait: impl FnMut(Duration) -> Result<Option<T>, Failure> + Send,
) -> PyResult<Option<T>> {
    repeat_and(py, timeout, wait, |_| Ok(()))
}

/// Repeats a wait as `repeat` does. Calls the second function after each wait that returns nothing.
pub(crate) fn repeat_and<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    mut wait: impl FnMut(Duration) -> Result<Option<T>, Failure> + Send,
    mut between: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<Option<T>> {
    let limit = timeout.map(duration).transpose()?;
    // A limit too long for the clock means no limit.
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let limit = left.map_or(TICK, |left| left.min(TICK));
        if let Some(done) = py.detach(|| wait(limit))? {
            return Ok(Some(done));
        }
        between(py)?;
        py.check_signals()?;
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(None);
        }
    }
}

/// Drops what may wait for the end of processes, without the GIL if there is an interpreter.
pub(crate) fn drop_detached<T: Send>(it: T) {
    let _ = Python::try_attach(|py| py.detach(move || drop(it)));
}

/// A descriptor for an event loop, and the seconds after which the wait for it ends in any case.
pub(crate) type Registered = (i32, Option<f64>);

/// Converts the time of a descriptor.
pub(crate) fn in_seconds((number, until): (i32, Option<Instant>)) -> Registered {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    (number, left.map(|left| left.as_secs_f64()))
}

/// Converts seconds. A negative number is zero, as in `subprocess`.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() {
        return Err(pyo3::exceptions::PyValueError::new_err("a time must be a number"));
    }
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}
