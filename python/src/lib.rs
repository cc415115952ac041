//! The native module of the Python package: commands, runs and children, without the shape of `subprocess`.
//!
//! | file | idea |
//! |---|---|
//! | `errors.rs` | errors as Python exceptions, with their facts; no panic crosses to Python |
//! | `options.rs` | a command from a dictionary of options |
//! | `ending.rs` | the result of a run |
//! | `shared.rs` | state that threads share, waits without the GIL, and the process that objects belong to |
//! | `run.rs` | a command that runs: its output to the end, its lines or events; large outputs |
//! | `starts.rs` | the starts of commands: one, several together, or joined by pipes |
//! | `child.rs` | a child whose streams belong to Python, and both of them read while its input is fed |
//! | `batch.rs` | many commands, with a log |
//! | `pool.rs` | worker processes that answer calls |

#![forbid(unsafe_code)]

mod batch;
mod child;
mod ending;
mod errors;
mod options;
mod pool;
mod run;
mod shared;
mod starts;

use std::sync::OnceLock;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Fails as a defect of this module would.
#[pyfunction]
fn inject_panic() -> PyResult<()> {
    crate::errors::guarded(|| {
        let nothing: [u8; 0] = [];
        let index = std::hint::black_box(7);
        // Panics.
        let _ = std::hint::black_box(nothing[index]);
        Ok(())
    })
}

/// Refuses a second interpreter of this process: signals, children and locks belong to one.
fn claim_for_this_interpreter(py: Python<'_>) -> PyResult<()> {
    static FIRST: OnceLock<usize> = OnceLock::new();
    // Each interpreter has a module of that name.
    let here = py.import("builtins")?.as_ptr() as usize;
    if *FIRST.get_or_init(|| here) == here {
        return Ok(());
    }
    let words = "pipewright cannot be imported in a subinterpreter: use it in the main interpreter, or in a process";
    Err(PyImportError::new_err(words))
}

/// Refuses a package that this module was not built with: another distribution with a package `pipewright` has written
/// its files over these, or a file is left of another version.
fn belongs_to_its_package(py: Python<'_>) -> PyResult<()> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let package = py.import("sys")?.getattr("modules")?.get_item("pipewright")?;
    let text = |name| package.getattr(name).and_then(|value| value.extract::<String>());
    if text("__version__").is_ok_and(|version| version == VERSION) {
        return Ok(());
    }
    let place = text("__file__").unwrap_or_else(|_| "an unknown place".to_owned());
    let words = format!(
        "{place} is not of pipewright-process {VERSION}: another distribution, or another version, was installed over \
         it: pip uninstall pipewright, then pip install --force-reinstall pipewright-process"
    );
    Err(PyImportError::new_err(words))
}

#[pymodule(gil_used = false)]
mod _pipewright {
    use super::{Bound, PyModule, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::claim_for_this_interpreter(module.py())?;
        super::belongs_to_its_package(module.py())
    }

    #[pymodule_export]
    use super::batch::{BatchRun, start_batch};
    #[pymodule_export]
    use super::child::{Child, Communication, spawn};
    #[pymodule_export]
    use super::ending::Ending;
    #[pymodule_export]
    use super::inject_panic;
    #[pymodule_export]
    use super::pool::{PendingReply, Pool};
    #[pymodule_export]
    use super::run::Run;
    #[pymodule_export]
    use super::starts::{
        Prepared, prepare_output, start, start_pipeline, start_registered, start_together,
    };
}
