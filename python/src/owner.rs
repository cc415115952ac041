//! Objects belong to the process that made them: a fork of the interpreter has copies that must not act.

use pyo3::prelude::*;

use crate::errors::raise;

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
            "this child belongs to process {}, and process {here} is a fork of it: start children where they are waited for",
            self.0
        );
        Err(Python::attach(|py| raise(py, "forked", &message, |_| Ok(()))))
    }
}
