//! A run to its end: blocking, or through a descriptor in an event loop.

use std::sync::Mutex;
use std::time::Duration;

use pipewright::{RunHandle, RunningOutput};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::ending::{Ended, Ending, containment_name};
use crate::errors::from_native;
use crate::guard::guarded;
use crate::options::command;
use crate::owner::Owner;
use crate::values::signal;
use crate::waiting::{lock, repeat};

/// A command whose output is read to its end.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Running {
    owner: Owner,
    handle: Mutex<Option<RunHandle>>,
    run: Mutex<Option<RunningOutput>>,
    pid: u32,
}

/// Starts a command.
#[pyfunction]
pub(crate) fn start_output(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Running> {
    guarded(|| {
        let mut command = command(options)?;
        let run = py.detach(|| command.start_output()).map_err(|error| from_native(&error))?;
        Ok(Running::of(run))
    })
}

impl Running {
    pub(crate) fn of(run: RunningOutput) -> Running {
        let (handle, pid) = (Mutex::new(Some(run.handle())), run.pid());
        Running { owner: Owner::this_process(), handle, run: Mutex::new(Some(run)), pid }
    }

    fn wait_for(&self, limit: Duration) -> PyResult<Option<Ended>> {
        let mut run = lock(&self.run);
        let running = run.as_mut().ok_or_else(no_longer)?;
        let Some(output) = running.wait_for(limit).map_err(|error| from_native(&error))? else {
            return Ok(None);
        };
        let stages = running.handle().ends().map_err(|error| from_native(&error))?;
        // Nothing is left to signal. The descriptor stays open: an event loop may still wait for it.
        *lock(&self.handle) = None;
        Ok(Some(Ending::of_output(output, stages)))
    }
}

pub(crate) fn no_longer() -> PyErr {
    PyRuntimeError::new_err("the run has ended, and its result has been returned")
}

/// The facts and both streams, for Python.
type Result3<'py> = (Ending, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

fn to_python(py: Python<'_>, (ending, stdout, stderr): Ended) -> Result3<'_> {
    (ending, PyBytes::new(py, &stdout), PyBytes::new(py, &stderr))
}

#[pymethods]
impl Running {
    #[getter]
    fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits without the GIL. Returns `None` if the time is up first.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Result3<'py>>> {
        guarded(|| {
            self.owner.check()?;
            let ended = repeat(py, timeout, |limit| self.wait_for(limit))?;
            Ok(ended.map(|ended| to_python(py, ended)))
        })
    }

    /// Does what can be done at once. Returns `None` if the run has not ended.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Result3<'py>>> {
        guarded(|| {
            self.owner.check()?;
            let ended = self.wait_for(Duration::ZERO)?;
            Ok(ended.map(|ended| to_python(py, ended)))
        })
    }

    /// Returns the descriptor that becomes readable when `poll` has something to do. Call it after each `poll`.
    fn fileno(&self) -> PyResult<i32> {
        guarded(|| {
            self.owner.check()?;
            let mut run = lock(&self.run);
            let running = run.as_mut().ok_or_else(no_longer)?;
            running.wait_descriptor().map_err(|error| from_native(&error))
        })
    }

    /// Returns a copy of the output so far.
    fn so_far<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        guarded(|| {
            self.owner.check()?;
            let taken = lock(&self.run).as_mut().map(RunningOutput::so_far);
            let [stdout, stderr] = taken.unwrap_or_default();
            Ok((PyBytes::new(py, &stdout), PyBytes::new(py, &stderr)))
        })
    }

    /// Kills the processes. Does nothing after the end.
    fn kill(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            self.owner.check()?;
            let Some(handle) = lock(&self.handle).clone() else { return Ok(()) };
            py.detach(|| handle.kill()).map_err(|error| from_native(&error))
        })
    }

    /// Kills the processes, and drops the run: its tree ends.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            self.owner.check()?;
            py.detach(|| {
                if let Some(handle) = lock(&self.handle).take() {
                    // Ignored: a process that has changed its user cannot be killed.
                    let _ = handle.kill();
                }
                drop(lock(&self.run).take());
            });
            Ok(())
        })
    }

    /// Sends a signal to the processes. Returns false after their end.
    fn signal(&self, number: i32) -> PyResult<bool> {
        guarded(|| {
            self.owner.check()?;
            let Some(handle) = lock(&self.handle).clone() else { return Ok(false) };
            handle.signal(signal(number)?).map_err(|error| from_native(&error))
        })
    }

    #[getter]
    fn containment(&self) -> &'static str {
        lock(&self.handle).as_ref().map_or("none", |handle| containment_name(handle.containment()))
    }
}
