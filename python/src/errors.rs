//! Errors as Python exceptions, with their facts, and no panic that crosses to Python. The classes are in `_errors.py`.

use std::any::Any;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pipewright::{Error, ErrorKind, NotExecutable};
use pipewright_batch::BatchError;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Makes the exception of this kind.
pub(crate) fn raise(
    py: Python<'_>,
    kind: &str,
    message: &str,
    add: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let facts = PyDict::new(py);
        facts.set_item("kind", kind)?;
        facts.set_item("message", message)?;
        add(&facts)?;
        let build = py.import("pipewright._errors")?.getattr("build")?;
        Ok(PyErr::from_value(build.call1((facts,))?))
    };
    made().unwrap_or_else(|failed| failed)
}

/// An error that is not an exception yet. Making the exception runs Python code, and no lock may be held then: another
/// thread would wait for that lock, and for it the collector of garbage, or the GIL.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The result of the run has been returned, or it has been abandoned.
    Gone,
    Native(pipewright::Error),
    /// A system call failed. The text says what it was for: "read the output".
    Io(&'static str, std::io::Error),
    Batch(BatchError),
    Ipc(pipewright_ipc::Error),
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| match failure {
            Failure::Gone => {
                PyRuntimeError::new_err("the run has ended, and its result has been returned")
            }
            Failure::Native(error) => {
                raise(py, error.kind().name(), &error.to_string(), |it| add(it, &error))
            }
            Failure::Io(doing, error) if error.kind() == std::io::ErrorKind::OutOfMemory => {
                PyMemoryError::new_err(format!("cannot {doing}: {error}"))
            }
            Failure::Io(doing, error) => {
                raise(py, "io", &format!("cannot {doing}: {error}"), |facts| {
                    facts.set_item("errno", error.raw_os_error())
                })
            }
            Failure::Batch(error) => {
                let kind = match error {
                    BatchError::Log(_) => "batch_log",
                    _ => "batch",
                };
                raise(py, kind, &error.to_string(), |_| Ok(()))
            }
            Failure::Ipc(error) => {
                let kind = match error.kind() {
                    pipewright_ipc::ErrorKind::TimedOut { .. } => "ipc_timed_out",
                    pipewright_ipc::ErrorKind::Died { .. } => "ipc_died",
                    _ => "ipc",
                };
                raise(py, kind, &error.to_string(), |_| Ok(()))
            }
        })
    }
}

fn add(facts: &Bound<'_, PyDict>, error: &Error) -> PyResult<()> {
    facts.set_item("program", bytes(facts.py(), error.program()))?;
    facts.set_item("errno", error.raw_os_error())?;
    facts.set_item("is_start", error.is_start())?;
    match error.kind() {
        ErrorKind::NotFound { searched } => {
            let list: Vec<_> =
                searched.iter().map(|dir| bytes(facts.py(), dir.as_os_str())).collect();
            facts.set_item("searched", list)
        }
        ErrorKind::CurrentDirMissing { dir } => {
            facts.set_item("dir", bytes(facts.py(), dir.as_os_str()))
        }
        ErrorKind::NotExecutable { reason: NotExecutable::MissingInterpreter(path) } => {
            facts.set_item("interpreter", bytes(facts.py(), path.as_os_str()))
        }
        ErrorKind::LimitUnavailable { limit } => facts.set_item("limit", limit.to_string()),
        _ => Ok(()),
    }
}

fn bytes<'py>(py: Python<'py>, text: &OsStr) -> Bound<'py, PyBytes> {
    PyBytes::new(py, text.as_bytes())
}

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
