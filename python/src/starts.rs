//! The starts of commands: one, several together, or joined by pipes.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread;

use pipewright::{Command, Pipeline};
use pipewright_os::base::wait::WaitDescriptor;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::{Failure, guarded};
use crate::options::{command, limit, linger, signal};
use crate::run::{How, Reading, Run};
use crate::shared::{Shared, duration};

/// Starts a command, to read its `output`, `lines` or `events`. The caller finds it in the list `started` too, also if
/// the interpreter raises what a signal handler has raised before it hands the result over.
#[pyfunction]
#[pyo3(signature = (options, how, started=None))]
pub(crate) fn start(
    py: Python<'_>,
    options: &Bound<'_, PyDict>,
    how: &str,
    started: Option<&Bound<'_, PyList>>,
) -> PyResult<Py<Run>> {
    guarded(|| {
        let (mut command, how) = (command(options)?, How::named(how)?);
        listed(py, Run::of(py.detach(|| how.start(&mut command))?), started)
    })
}

fn listed(py: Python<'_>, run: Run, started: Option<&Bound<'_, PyList>>) -> PyResult<Py<Run>> {
    let run = Py::new(py, run)?;
    started.map_or(Ok(()), |started| started.append(&run))?;
    Ok(run)
}

/// Starts a command that an event loop waits for.
#[pyfunction]
pub(crate) fn start_registered(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Run> {
    guarded(|| {
        let mut command = command(options)?;
        Ok(Run::of(py.detach(|| start_with_descriptor(&mut command))?))
    })
}

/// Starts a command. What an event loop waits for is made before, so that no command runs that cannot be waited for.
fn start_with_descriptor(command: &mut Command) -> Result<Reading, Failure> {
    let descriptor = WaitDescriptor::new();
    let descriptor = descriptor.map_err(|error| Failure::Io("wait for the command", error))?;
    let run = command.start_output().map_err(Failure::Native)?;
    Ok(Reading::Output(run.with_wait_descriptor(descriptor)))
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

/// Starts several commands, on this thread and a few others, which have ended when it returns. Each entry of the list
/// is a `Run`, or the exception of that start.
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
                Some(Ok(run)) => Bound::new(py, Run::of(run))?.into_any(),
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

fn start_all(commands: &mut [Option<Command>]) -> Vec<Option<Result<Reading, Failure>>> {
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

/// Starts a pipeline, to read its `output`, `lines` or `events`. `started` is as for [`start`].
#[pyfunction]
#[pyo3(signature = (stages, options, how, started=None))]
pub(crate) fn start_pipeline(
    py: Python<'_>,
    stages: &Bound<'_, PyList>,
    options: &Bound<'_, PyDict>,
    how: &str,
    started: Option<&Bound<'_, PyList>>,
) -> PyResult<Py<Run>> {
    guarded(|| {
        let ((commands, set), how) = (parts(stages, options)?, How::named(how)?);
        listed(py, Run::of(py.detach(move || how.start_all(set.pipeline(commands)))?), started)
    })
}

/// The settings of a whole pipeline.
type Setting = Box<dyn Fn(&mut Pipeline<'_>) + Send>;

struct Settings(Vec<Setting>);

impl Settings {
    fn pipeline(&self, commands: Vec<Command>) -> Pipeline<'static> {
        let mut pipeline = Pipeline::new(commands);
        for set in &self.0 {
            set(&mut pipeline);
        }
        pipeline
    }
}

fn parts(
    stages: &Bound<'_, PyList>,
    options: &Bound<'_, PyDict>,
) -> PyResult<(Vec<Command>, Settings)> {
    let commands: PyResult<Vec<Command>> =
        stages.iter().map(|stage| command(stage.cast()?)).collect();
    let mut settings: Vec<Setting> = Vec::new();
    for (key, value) in options {
        settings.push(setting(&key.extract::<String>()?, &value)?);
    }
    Ok((commands?, Settings(settings)))
}

fn setting(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Setting> {
    Ok(match key {
        "timeout" => {
            let time = duration(value.extract()?)?;
            Box::new(move |it| {
                it.timeout(time);
            })
        }
        "idle_timeout" => {
            let time = duration(value.extract()?)?;
            Box::new(move |it| {
                it.idle_timeout(time);
            })
        }
        "kill_grace" => {
            let time = duration(value.extract()?)?;
            Box::new(move |it| {
                it.kill_grace(time);
            })
        }
        "stop_signal" => {
            let signal = signal(value.extract()?)?;
            Box::new(move |it| {
                it.stop_signal(signal);
            })
        }
        "limit" => {
            let (limit, folder) = limit(value)?;
            Box::new(move |it| {
                it.limit(limit);
                if let Some(folder) = &folder {
                    it.spill_to(folder);
                }
            })
        }
        "linger" => {
            let linger = linger(value)?;
            Box::new(move |it| {
                it.linger(linger);
            })
        }
        "pipefail" => {
            let pipefail = value.is_truthy()?;
            Box::new(move |it| {
                it.pipefail(pipefail);
            })
        }
        _ => {
            let words = format!("a pipeline has no option {key:?}");
            return Err(pyo3::exceptions::PyTypeError::new_err(words));
        }
    })
}
