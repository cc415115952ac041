//! The result of a run, as Python sees it.

use std::path::Path;

use pipewright::{
    Captured, ChildEnd, Exceeded, ExitStatus, LimitMechanism, OutOfMemory, Outcome, TreeUsage,
    Usage,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::options::seconds;

/// The end of a run, with all its facts.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Ending {
    facts: Captured<()>,
    stages: Vec<ChildEnd>,
}

/// The facts and both streams.
pub(crate) type Ended = (Ending, Vec<u8>, Vec<u8>);

impl Ending {
    pub(crate) fn of_output(output: Captured<Vec<u8>>, stages: Vec<ChildEnd>) -> Ended {
        let (mut streams, mut count) = ([Vec::new(), Vec::new()], 0);
        let mut output = output;
        for bytes in [&mut output.stdout, &mut output.stderr] {
            streams[count] = std::mem::take(bytes);
            count += 1;
        }
        let [stdout, stderr] = streams;
        (Ending { facts: output.into_ending(), stages }, stdout, stderr)
    }

    pub(crate) fn of_ending(facts: Captured<()>) -> Ending {
        Ending { facts, stages: Vec::new() }
    }
}

#[pymethods]
impl Ending {
    /// Copies and pickles have the facts as plain values.
    fn __reduce__<'py>(
        slf: &Bound<'py, Ending>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        const NAMES: [&str; 20] = [
            "returncode",
            "pid",
            "outcome",
            "reason",
            "exceeded",
            "elapsed",
            "held_open",
            "truncated",
            "stdin_unread",
            "containment",
            "leftovers_killed",
            "stdout_bytes",
            "stderr_bytes",
            "stdout_file",
            "stderr_file",
            "tee_failed",
            "usage",
            "tree_usage",
            "out_of_memory",
            "limits",
        ];
        let py = slf.py();
        let facts = PyDict::new(py);
        for name in NAMES.into_iter().chain(["stages"]) {
            facts.set_item(name, slf.getattr(name)?)?;
        }
        Ok((py.import("pipewright._result")?.getattr("Facts")?, (facts,)))
    }

    #[getter]
    fn returncode(&self) -> i32 {
        code(self.facts.status)
    }

    #[getter]
    fn pid(&self) -> u32 {
        self.facts.pid
    }

    #[getter]
    fn outcome(&self) -> &'static str {
        self.facts.outcome.name()
    }

    #[getter]
    fn reason(&self) -> String {
        match (self.facts.outcome, self.facts.exceeded) {
            (Outcome::OutOfMemory(oom), _) => oom.to_string(),
            (_, Some(exceeded)) => exceeded.to_string(),
            (Outcome::Exited | Outcome::Signaled, None) => self.facts.status.to_string(),
            (outcome, None) => outcome.to_string(),
        }
    }

    #[getter]
    fn exceeded(&self) -> Option<f64> {
        self.facts.exceeded.and_then(|exceeded| match exceeded {
            Exceeded::Time(limit) | Exceeded::Silence(limit) => Some(seconds(limit)),
            _ => None,
        })
    }

    #[getter]
    fn elapsed(&self) -> f64 {
        seconds(self.facts.elapsed)
    }

    #[getter]
    fn held_open(&self) -> bool {
        self.facts.held_open
    }

    #[getter]
    fn truncated(&self) -> bool {
        self.facts.truncated
    }

    #[getter]
    fn stdin_unread(&self) -> u64 {
        self.facts.stdin_unread
    }

    #[getter]
    fn containment(&self) -> &'static str {
        self.facts.containment.name()
    }

    #[getter]
    fn leftovers_killed(&self) -> u32 {
        self.facts.leftovers_killed
    }

    #[getter]
    fn stdout_bytes(&self) -> Option<u64> {
        self.facts.stdout_bytes
    }

    #[getter]
    fn stderr_bytes(&self) -> Option<u64> {
        self.facts.stderr_bytes
    }

    #[getter]
    fn stdout_file(&self) -> Option<&Path> {
        self.facts.stdout_file.as_deref()
    }

    #[getter]
    fn stderr_file(&self) -> Option<&Path> {
        self.facts.stderr_file.as_deref()
    }

    #[getter]
    fn tee_failed(&self) -> Option<String> {
        self.facts.tee_failed.map(|failed| failed.to_string())
    }

    #[getter]
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.facts.usage.map(|usage| usage_of(py, usage)).transpose()
    }

    #[getter]
    fn tree_usage<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.facts.tree_usage.as_deref().map(|usage| tree_usage_of(py, usage)).transpose()
    }

    #[getter]
    fn out_of_memory<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.facts.out_of_memory.map(|oom| out_of_memory_of(py, oom)).transpose()
    }

    /// Returns the mechanism that holds the limits, and the limits that could not be held with the reasons.
    #[getter]
    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(held) = &self.facts.limits else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item("mechanism", held.mechanism.map(LimitMechanism::name))?;
        dict.set_item("memory", held.limits.memory_max_bytes)?;
        dict.set_item("swap", held.limits.memory_swap_max_bytes)?;
        dict.set_item("cpus", held.limits.cpu_time_per_second.map(seconds))?;
        dict.set_item("pids", held.limits.pids_max)?;
        let missing: Vec<String> = held.missing.iter().map(|it| format!("{it:?}")).collect();
        dict.set_item("missing", missing)?;
        Ok(Some(dict))
    }

    #[getter]
    fn stages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for stage in &self.stages {
            let dict = PyDict::new(py);
            dict.set_item("pid", stage.pid)?;
            dict.set_item("returncode", code(stage.status))?;
            dict.set_item("usage", stage.usage.map(|usage| usage_of(py, usage)).transpose()?)?;
            list.append(dict)?;
        }
        Ok(list)
    }
}

/// Returns the exit code, or the negative number of the signal, as `subprocess` does.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|number| -number)).unwrap_or(-1)
}

pub(crate) fn usage_of(py: Python<'_>, usage: Usage) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("user", seconds(usage.user))?;
    dict.set_item("system", seconds(usage.system))?;
    dict.set_item("peak_rss_bytes", usage.peak_rss_bytes)?;
    Ok(dict)
}

fn tree_usage_of<'py>(py: Python<'py>, usage: &TreeUsage) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("user", usage.user.map(seconds))?;
    dict.set_item("system", usage.system.map(seconds))?;
    dict.set_item("peak_memory_bytes", usage.peak_memory_bytes)?;
    dict.set_item("peak_pids", usage.peak_pids)?;
    Ok(dict)
}

fn out_of_memory_of(py: Python<'_>, oom: OutOfMemory) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("limit", oom.limit.name())?;
    dict.set_item("killed", oom.killed)?;
    dict.set_item("peak_bytes", oom.peak_bytes)?;
    dict.set_item("victim", oom.victim.map(|victim| victim.name().to_owned()))?;
    dict.set_item("message", oom.to_string())?;
    Ok(dict)
}
