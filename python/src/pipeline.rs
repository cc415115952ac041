//! Commands joined by pipes.

use pipewright::{Command, Pipeline};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::Failure;
use crate::guard::guarded;
use crate::options::command;
use crate::running::Running;
use crate::stream::{Events, Lines};
use crate::values::{limit, linger, signal};
use crate::waiting::duration;

/// Starts a pipeline whose output is read to its end.
#[pyfunction]
pub(crate) fn pipe_output(
    py: Python<'_>,
    stages: &Bound<'_, PyList>,
    options: &Bound<'_, PyDict>,
) -> PyResult<Running> {
    guarded(|| {
        let (commands, set) = parts(stages, options)?;
        let started = py.detach(move || set.pipeline(commands).start_output());
        Ok(Running::of(started.map_err(Failure::Native)?))
    })
}

/// Starts a pipeline whose lines are read.
#[pyfunction]
pub(crate) fn pipe_lines(
    py: Python<'_>,
    stages: &Bound<'_, PyList>,
    options: &Bound<'_, PyDict>,
) -> PyResult<Lines> {
    guarded(|| {
        let (commands, set) = parts(stages, options)?;
        let started = py.detach(move || set.pipeline(commands).lines());
        Ok(Lines::of(started.map_err(Failure::Native)?))
    })
}

/// Starts a pipeline whose events are read.
#[pyfunction]
pub(crate) fn pipe_events(
    py: Python<'_>,
    stages: &Bound<'_, PyList>,
    options: &Bound<'_, PyDict>,
) -> PyResult<Events> {
    guarded(|| {
        let (commands, set) = parts(stages, options)?;
        let started = py.detach(move || set.pipeline(commands).events());
        Ok(Events::of(started.map_err(Failure::Native)?))
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
            let limit = limit(value.extract()?)?;
            Box::new(move |it| {
                it.limit(limit);
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
