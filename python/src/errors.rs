//! Errors as Python exceptions, with their facts. The classes are in `_errors.py`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use pipewright::{Error, ErrorKind, NotExecutable};
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

/// Makes the exception of an error of the library.
pub(crate) fn from_native(error: &Error) -> PyErr {
    Python::attach(|py| raise(py, error.kind().name(), &error.to_string(), |it| add(it, error)))
}

/// Makes the exception of an error of a system call.
pub(crate) fn from_io(doing: &str, error: &std::io::Error) -> PyErr {
    Python::attach(|py| {
        raise(py, "io", &format!("cannot {doing}: {error}"), |facts| {
            facts.set_item("errno", error.raw_os_error())
        })
    })
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
