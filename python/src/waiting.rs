//! Waits without the GIL, which see signals: Python's handlers run in between.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::errors::Failure;

/// The longest wait before Python's signal handlers get to run. Only a signal that arrives during the wait is delayed by it.
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
