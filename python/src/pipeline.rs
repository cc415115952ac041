//! Commands joined by pipes.

use pipewright::{Command, Pipeline};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::guard::guarded;
use crate::options::command;
use crate::run::{How, Run};
use crate::values::{limit, linger, signal};
use crate::waiting::duration;

/// Starts a pipeline, to read its `output`, `lines` or `events`.
#[pyfunction]
pub(crate) fn start_pipeline(
    py: Python<'_>,
    stages: &Bound<'_, PyList>,
    options: &Bound<'_, PyDict>,
    how: &str,
) -> PyResult<Run> {
    guarded(|| {
        let ((commands, set), how) = (parts(stages, options)?, How::named(how)?);
        Ok(Run::of(py.detach(move || how.start_all(set.pipeline(commands)))?))
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
