//! A run to its end: blocking, or through a descriptor in an event loop.

use std::num::NonZero;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use pipewright::{Command, Error, RunHandle, RunningOutput};
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

/// A command that has not been started.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Prepared(Mutex<Option<Command>>);

/// Makes a command, which has its own copies of all descriptors, and does not start it.
#[pyfunction]
pub(crate) fn prepare_output(options: &Bound<'_, PyDict>) -> PyResult<Prepared> {
    guarded(|| Ok(Prepared(Mutex::new(Some(command(options)?)))))
}

/// Starts several commands, on this thread and a few others, which have ended when it returns. Each entry of the list is a
/// `Running`, or the exception of that start.
///
/// A thread sleeps until the child has loaded its program. Two threads keep two processors busy.
#[pyfunction]
pub(crate) fn start_together<'py>(
    py: Python<'py>,
    all: Vec<Bound<'py, Prepared>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    guarded(|| {
        let commands: Vec<_> = all.iter().map(|it| lock(&it.get().0).take()).collect();
        let started = py.detach(|| start_all(commands));
        let mut results = Vec::with_capacity(started.len());
        for result in started {
            results.push(match result {
                Some(Ok(run)) => Bound::new(py, Running::of(run))?.into_any(),
                Some(Err(error)) => from_native(&error).into_value(py).into_bound(py).into_any(),
                None => no_longer().into_value(py).into_bound(py).into_any(),
            });
        }
        Ok(results)
    })
}

fn start_all(commands: Vec<Option<Command>>) -> Vec<Option<Result<RunningOutput, Error>>> {
    /// The least number of commands for each thread: a thread costs a tenth of a start.
    const SHARE: usize = 4;
    const MOST_THREADS: usize = 4;
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let processors =
        *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get));
    let helpers = processors.min(MOST_THREADS).min(commands.len() / SHARE).saturating_sub(1);
    let mut results: Vec<_> = commands.iter().map(|_| None).collect();
    let work = Mutex::new(commands.into_iter().zip(&mut results));
    let start = || {
        loop {
            let next = lock(&work).next();
            let Some((command, result)) = next else { return };
            *result = command.map(|mut command| command.start_output());
        }
    };
    thread::scope(|scope| {
        for _ in 0..helpers {
            // Ignored: without a thread, this one starts all.
            let _ = thread::Builder::new().spawn_scoped(scope, start);
        }
        start();
    });
    drop(work);
    results
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
