//! A run to its end: blocking, or through a descriptor in an event loop.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use pipewright::{Command, RunHandle, RunningOutput};
use pipewright_os::base::wait::WaitDescriptor;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::ending::{Ended, Ending, containment_name};
use crate::errors::Failure;
use crate::guard::guarded;
use crate::large::{LARGE_BYTES, Large};
use crate::options::command;
use crate::owner::Owner;
use crate::shared::Shared;
use crate::values::signal;
use crate::waiting::{Registered, drop_detached, in_seconds, repeat_and};

/// A command whose output is read to its end.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Running {
    owner: Owner,
    handle: Shared<Option<RunHandle>>,
    run: Shared<Option<RunningOutput>>,
    large: Large,
    pid: u32,
}

/// Starts a command.
#[pyfunction]
pub(crate) fn start_output(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Running> {
    guarded(|| {
        let mut command = command(options)?;
        let run = py.detach(|| command.start_output()).map_err(Failure::Native)?;
        Ok(Running::of(run))
    })
}

/// Starts a command that an event loop waits for.
#[pyfunction]
pub(crate) fn start_registered(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Running> {
    guarded(|| {
        let mut command = command(options)?;
        Ok(Running::of(py.detach(|| start_with_descriptor(&mut command))?))
    })
}

/// Starts a command. What an event loop waits for is made before, so that no command runs that cannot be waited for.
fn start_with_descriptor(command: &mut Command) -> Result<RunningOutput, Failure> {
    let descriptor = WaitDescriptor::new();
    let descriptor = descriptor.map_err(|error| Failure::Io("wait for the command", error))?;
    let run = command.start_output().map_err(Failure::Native)?;
    Ok(run.with_wait_descriptor(descriptor))
}

/// A command that has not been started.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Prepared(Shared<Option<Command>>);

/// Makes a command, which has its own copies of all descriptors, and does not start it.
#[pyfunction]
pub(crate) fn prepare_output(options: &Bound<'_, PyDict>) -> PyResult<Prepared> {
    guarded(|| Ok(Prepared(Shared::new(Some(command(options)?)))))
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
        let mut commands: Vec<_> = all.iter().map(|it| it.get().0.lock(py).take()).collect();
        let started = py.detach(|| start_all(&mut commands));
        let mut results = Vec::with_capacity(started.len());
        for ((prepared, command), result) in all.iter().zip(commands).zip(started) {
            results.push(match result {
                Some(Ok(run)) => Bound::new(py, Running::of(run))?.into_any(),
                Some(Err(failure)) => {
                    // It can be started later.
                    *prepared.get().0.lock(py) = command;
                    exception(py, failure)
                }
                None => exception(py, Failure::Gone),
            });
        }
        Ok(results)
    })
}

fn exception(py: Python<'_>, failure: Failure) -> Bound<'_, PyAny> {
    PyErr::from(failure).into_value(py).into_bound(py).into_any()
}

fn start_all(commands: &mut [Option<Command>]) -> Vec<Option<Result<RunningOutput, Failure>>> {
    /// The least number of commands for each thread: a thread costs a tenth of a start.
    const SHARE: usize = 4;
    const MOST_THREADS: usize = 4;
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let processors =
        *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get));
    let helpers = processors.min(MOST_THREADS).min(commands.len() / SHARE).saturating_sub(1);
    let mut results: Vec<_> = commands.iter().map(|_| None).collect();
    let work = Shared::new(commands.iter_mut().zip(&mut results));
    let start = || {
        loop {
            let next = work.lock_detached().next();
            let Some((command, result)) = next else { return };
            *result = command.as_mut().map(start_with_descriptor);
        }
    };
    thread::scope(|scope| {
        for _ in 0..helpers {
            // Ignored: without a thread, this one starts all.
            let _ = thread::Builder::new().spawn_scoped(scope, start);
        }
        start();
    });
    results
}

impl Running {
    pub(crate) fn of(run: RunningOutput) -> Running {
        let (handle, pid) = (Shared::new(Some(run.handle())), run.pid());
        let (run, large) = (Shared::new(Some(run)), Large::new());
        Running { owner: Owner::this_process(), handle, run, large, pid }
    }

    /// Waits for the end; `None` if the time is up first, or an output is large, whose part has been taken then.
    fn wait_for(
        &self,
        run: &mut Option<RunningOutput>,
        limit: Duration,
    ) -> Result<Option<Ended>, Failure> {
        let running = run.as_mut().ok_or(Failure::Gone)?;
        let waited = running.wait_for_bytes(limit, LARGE_BYTES).map_err(Failure::Native)?;
        let Some(output) = waited else {
            if running.bytes_so_far() >= LARGE_BYTES {
                self.large.take(running);
            }
            return Ok(None);
        };
        let stages = running.handle().ends().map_err(Failure::Native)?;
        // The descriptor stays open: an event loop may still wait for it.
        Ok(Some(Ending::of_output(output, stages)))
    }

    fn give<'py>(&self, py: Python<'py>, ended: Option<Ended>) -> PyResult<Option<Result3<'py>>> {
        let Some((ending, stdout, stderr)) = ended else { return Ok(None) };
        // Nothing is left to signal.
        *self.handle.lock(py) = None;
        let stdout = self.large.finish(py, 0, &stdout)?;
        let stderr = self.large.finish(py, 1, &stderr)?;
        Ok(Some((ending, stdout, stderr)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop_detached((self.run.get_mut().take(), self.handle.get_mut().take()));
    }
}

/// The facts and both streams, for Python.
type Result3<'py> = (Ending, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

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
            let ended = repeat_and(
                py,
                timeout,
                |limit| self.wait_for(&mut self.run.lock_detached(), limit),
                |py| self.large.add(py),
            )?;
            if ended.is_some() {
                let run = self.run.lock(py).take();
                py.detach(|| drop(run));
            }
            self.give(py, ended)
        })
    }

    /// Drops what is left of a run that has ended, when no event loop waits for its descriptor any more.
    fn release(&self, py: Python<'_>) {
        *self.handle.lock(py) = None;
        let run = self.run.lock(py).take();
        py.detach(|| drop(run));
    }

    /// Does what can be done at once. Returns `None` if the run has not ended.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Result3<'py>>> {
        guarded(|| {
            self.owner.check()?;
            let ended = self.wait_for(&mut self.run.lock(py), Duration::ZERO);
            self.large.add(py)?;
            self.give(py, ended?)
        })
    }

    /// Returns the descriptor that becomes readable when `poll` has something to do, and the seconds after which it has in
    /// any case. Call it after each `poll`.
    fn register(&self, py: Python<'_>) -> PyResult<Registered> {
        guarded(|| {
            self.owner.check()?;
            let registered = match self.run.lock(py).as_mut() {
                Some(running) => running.wait_registered().map_err(Failure::Native),
                None => Err(Failure::Gone),
            };
            Ok(in_seconds(registered?))
        })
    }

    /// Returns a copy of the output so far.
    fn so_far<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        guarded(|| {
            self.owner.check()?;
            let taken = self.run.lock(py).as_mut().map(RunningOutput::so_far);
            let [stdout, stderr] = taken.unwrap_or_default();
            Ok((self.large.so_far(py, 0, &stdout)?, self.large.so_far(py, 1, &stderr)?))
        })
    }

    /// Kills the processes. Does nothing after the end.
    fn kill(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            self.owner.check()?;
            let Some(handle) = self.handle.lock(py).clone() else { return Ok(()) };
            Ok(py.detach(|| handle.kill()).map_err(Failure::Native)?)
        })
    }

    /// Kills the processes, and drops the run: its tree ends.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            self.owner.check()?;
            py.detach(|| {
                if let Some(handle) = self.handle.lock_detached().take() {
                    // Ignored: a process that has changed its user cannot be killed.
                    let _ = handle.kill();
                }
                drop(self.run.lock_detached().take());
            });
            Ok(())
        })
    }

    /// Sends a signal to the processes. Returns false after their end.
    fn signal(&self, py: Python<'_>, number: i32) -> PyResult<bool> {
        guarded(|| {
            self.owner.check()?;
            let Some(handle) = self.handle.lock(py).clone() else { return Ok(false) };
            Ok(handle.signal(signal(number)?).map_err(Failure::Native)?)
        })
    }

    #[getter]
    fn containment(&self, py: Python<'_>) -> &'static str {
        self.handle
            .lock(py)
            .as_ref()
            .map_or("none", |handle| containment_name(handle.containment()))
    }
}
