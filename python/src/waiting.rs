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
    mut wait: impl FnMut(Duration) -> Result<Option<T>, Failure> + Send,
) -> PyResult<Option<T>> {
    let until = timeout.map(deadline).transpose()?.flatten();
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let limit = left.map_or(TICK, |left| left.min(TICK));
        if let Some(done) = py.detach(|| wait(limit))? {
            return Ok(Some(done));
        }
        py.check_signals()?;
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(None);
        }
    }
}

/// Returns the time of a timeout; `None` if it is too far away for the clock.
pub(crate) fn deadline(seconds: f64) -> PyResult<Option<Instant>> {
    Ok(Instant::now().checked_add(duration(seconds)?))
}

/// Converts seconds. A negative number is zero, as in `subprocess`.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() {
        return Err(pyo3::exceptions::PyValueError::new_err("a time must be a number"));
    }
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}
