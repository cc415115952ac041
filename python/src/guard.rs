//! No panic crosses to Python: it becomes an exception.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

use crate::errors::raise;

/// Runs the work of an entry point. A panic becomes `pipewright.InternalError`.
pub(crate) fn guarded<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // The objects of this module stay consistent: a run that has panicked is dropped with its lock poisoned, and every
    // lock is taken regardless of that.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(payload) => Err(internal_error(&*payload)),
    }
}

fn internal_error(payload: &(dyn Any + Send)) -> PyErr {
    let words = payload.downcast_ref::<&str>().copied();
    let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = format!("a defect in pipewright: {}", words.unwrap_or("unknown"));
    Python::attach(|py| raise(py, "internal", &message, |_| Ok(())))
}
