//! Many commands, some of them at the same time, with a log that can be resumed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pipewright_batch::{
    AttemptOutcome, Batch, Containing, Control, Event, HaltRule, Job, JobAttributes, JobStdin,
    JobUser, OutputMode, OutputOptions, ProgressKind, Run, Summary,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::errors::{Failure, guarded};
use crate::options::{seconds, signal, tree_limits};
use crate::shared::{Owner, Shared, duration, repeat};

/// A batch that runs.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct BatchRun {
    owner: Owner,
    control: Control,
    run: Shared<Option<Run>>,
}

/// Starts a batch.
#[pyfunction]
pub(crate) fn start_batch(
    py: Python<'_>,
    jobs: &Bound<'_, PyList>,
    options: &Bound<'_, PyDict>,
) -> PyResult<BatchRun> {
    guarded(|| {
        let jobs: PyResult<Vec<Job>> = jobs.iter().map(|it| job(it.cast()?)).collect();
        let (jobs, batch) = (jobs?, batch(options)?);
        let run = py.detach(|| batch.start(jobs)).map_err(Failure::Batch)?;
        let control = run.control();
        Ok(BatchRun { owner: Owner::this_process(), control, run: Shared::new(Some(run)) })
    })
}

fn halt(rule: &str) -> PyResult<HaltRule> {
    rule.parse().map_err(|error| PyValueError::new_err(format!("{rule:?} is {error}")))
}

fn batch(options: &Bound<'_, PyDict>) -> PyResult<Batch> {
    let mut batch = Batch::new();
    let mut output = OutputOptions::default();
    output.mode = OutputMode::Discard;
    let mut attributes = JobAttributes::default();
    for (key, value) in options {
        let key: String = key.extract()?;
        batch = match key.as_str() {
            "slots" => batch.jobs(value.extract()?),
            "log" => batch.log(path(&value)?),
            "resume" => batch.resume(value.is_truthy()?),
            "retry_failed" => batch.retry_failed(value.is_truthy()?),
            "rerun_unknown" => batch.rerun_unknown(value.is_truthy()?),
            "trust_log" => batch.trust_log(value.is_truthy()?),
            "retries" => batch.retries(value.extract()?),
            "once" => batch.once(value.is_truthy()?),
            "timeout" => batch.timeout(duration(value.extract()?)?),
            "batch_timeout" => batch.batch_timeout(duration(value.extract()?)?),
            "start_delay" => batch.start_delay(duration(value.extract()?)?),
            "max_load" => batch.max_load(value.extract()?),
            "min_free_memory" => batch.min_free_memory(value.extract()?),
            "joblog" => batch.joblog_to(path(&value)?),
            "junit" => batch.junit_to(path(&value)?),
            "idle_timeout" => batch.idle_timeout(duration(value.extract()?)?),
            "halt" => batch.halt(halt(&value.extract::<String>()?)?),
            "memory" => batch.memory_bytes(value.extract()?),
            "describe" => batch.describe(value.extract::<String>()?),
            "tree" if value.is_truthy()? => batch.contain(Containing::Tree),
            "tree" => batch.contain(Containing::Group),
            "retry_delay" => {
                let (first, most): (f64, f64) = value.extract()?;
                batch.retry_delay(duration(first)?, duration(most)?)
            }
            "stop_with" => {
                let (number, grace): (i32, f64) = value.extract()?;
                batch.stop_with(signal(number)?, duration(grace)?)
            }
            "progress" => batch.progress(match value.extract::<String>()?.as_str() {
                "bar" => ProgressKind::Bar,
                _ => ProgressKind::Plain,
            }),
            "cwd" => batch.current_dir(path(&value)?),
            "env" => {
                let variables: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)> = value.extract()?;
                for (name, value) in variables {
                    batch = batch.env(text(&name)?, text(&value)?);
                }
                batch
            }
            "clear_env" | "user" | "nice" | "umask" | "limits" => {
                set_attribute(&mut attributes, &key, &value)?;
                batch
            }
            "output" | "output_dir" | "keep_order" | "tag" | "keep_output" => {
                set_output(&mut output, &key, &value)?;
                batch
            }
            _ => return Err(PyTypeError::new_err(format!("a batch has no option {key:?}"))),
        };
    }
    Ok(batch.output(output).attributes(attributes))
}

fn set_attribute(
    attributes: &mut JobAttributes,
    key: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    match key {
        "clear_env" => attributes.env_clear = value.is_truthy()?,
        "user" => {
            let (user, group, groups) = value.extract()?;
            attributes.user = Some(JobUser::new(user, group, groups));
        }
        "nice" => attributes.nice = Some(value.extract()?),
        "umask" => attributes.umask = Some(value.extract()?),
        _ => attributes.limits = Some(tree_limits(value.cast()?)?),
    }
    Ok(())
}

fn set_output(output: &mut OutputOptions, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match key {
        "output" => {
            output.mode = match value.extract::<String>()?.as_str() {
                "group" => OutputMode::Group,
                "lines" => OutputMode::LineBuffer,
                "on_failure" => OutputMode::OnFailure,
                "none" => OutputMode::Discard,
                _ => {
                    let words = "output is 'group', 'lines', 'on_failure' or 'none'";
                    return Err(PyValueError::new_err(words));
                }
            }
        }
        "output_dir" => output.dir = Some(path(value)?),
        "keep_output" => {
            if let Ok(bytes) = value.extract::<u64>() {
                output.max_bytes = Some(bytes);
            } else if let Ok((head, tail)) = value.extract() {
                output.head_and_tail = Some((head, tail));
            } else {
                let (head, tail, folder): (usize, usize, PathBuf) = value.extract()?;
                output.head_and_tail = Some((head, tail));
                output.spill_to = Some(folder);
            }
        }
        "keep_order" => output.keep_order = value.is_truthy()?,
        _ => output.tag = value.is_truthy()?,
    }
    Ok(())
}

fn job(options: &Bound<'_, PyDict>) -> PyResult<Job> {
    let mut job = match options.get_item("shell")? {
        Some(line) => Job::shell(text(&line)?),
        None => {
            let argv = options.get_item("argv")?;
            let argv = argv.ok_or_else(|| PyTypeError::new_err("a job needs a command"))?;
            let argv: Vec<Bound<'_, PyAny>> = argv.extract()?;
            let argv: PyResult<Vec<OsString>> = argv.iter().map(text).collect();
            let mut argv = argv?.into_iter();
            let program = argv.next().ok_or_else(|| PyTypeError::new_err("a command is empty"))?;
            Job::new(program).args(argv)
        }
    };
    for (key, value) in options {
        job = match key.extract::<String>()?.as_str() {
            "shell" | "argv" => job,
            "name" => job.name(value.extract::<String>()?),
            "cwd" => job.current_dir(path(&value)?),
            "env" => {
                let variables: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)> = value.extract()?;
                for (name, value) in variables {
                    job = job.env(text(&name)?, text(&value)?);
                }
                job
            }
            "input" => job.stdin(JobStdin::bytes(value.extract::<Vec<u8>>()?)),
            "after" => {
                for name in value.extract::<Vec<String>>()? {
                    job = job.after(name);
                }
                job
            }
            "cpus" => job.cpus(value.extract()?),
            "memory" => job.mem_bytes(value.extract()?),
            "timeout" => job.timeout(duration(value.extract()?)?),
            "retries" => job.retries(value.extract()?),
            "once" => job.once(value.is_truthy()?),
            other => return Err(PyTypeError::new_err(format!("a job has no option {other:?}"))),
        };
    }
    Ok(job)
}

fn text(value: &Bound<'_, PyAny>) -> PyResult<OsString> {
    Ok(OsString::from_vec(value.cast::<PyBytes>()?.as_bytes().to_vec()))
}

fn path(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    text(value).map(PathBuf::from)
}

/// Converts an event to `(name, facts)`; `None` for one that Python does not need.
fn convert<'py>(
    py: Python<'py>,
    event: &Event,
) -> PyResult<Option<(&'static str, Bound<'py, PyDict>)>> {
    let facts = PyDict::new(py);
    let name = match event {
        Event::Started { key, slot, command, .. } => {
            facts.set_item("job", key.job)?;
            facts.set_item("attempt", key.attempt)?;
            facts.set_item("slot", slot)?;
            facts.set_item("command", command)?;
            "started"
        }
        Event::Ended { end, last_lines, .. } => {
            facts.set_item("job", end.key.job)?;
            facts.set_item("attempt", end.key.attempt)?;
            facts.set_item("returncode", returncode(&end.outcome))?;
            facts.set_item("reason", end.outcome.to_string())?;
            facts.set_item("elapsed", seconds(end.elapsed))?;
            facts.set_item("user", end.user.map(seconds))?;
            facts.set_item("system", end.system.map(seconds))?;
            facts.set_item("peak_rss_bytes", end.peak_rss_bytes)?;
            facts.set_item("leftovers_killed", end.leftovers_killed)?;
            facts.set_item("tail", last_lines)?;
            "ended"
        }
        Event::Settled { job, outcome, reason, before, .. } => {
            facts.set_item("job", job)?;
            facts.set_item("state", outcome.name())?;
            facts.set_item("reason", reason)?;
            facts.set_item("before", before)?;
            "settled"
        }
        Event::Note(text) => {
            facts.set_item("text", text)?;
            "note"
        }
        _ => return Ok(None),
    };
    Ok(Some((name, facts)))
}

fn returncode(outcome: &AttemptOutcome) -> Option<i32> {
    match outcome {
        AttemptOutcome::Exited(code) => Some(*code),
        AttemptOutcome::Signaled(number) => Some(-number),
        _ => None,
    }
}

/// The counts of a summary, which may belong to a run that is locked.
struct Counts {
    numbers: [(&'static str, u64); 7],
    halted: Option<&'static str>,
    elapsed: f64,
    exit_code: i32,
    text: String,
}

impl Counts {
    fn of(summary: &Summary) -> Counts {
        Counts {
            numbers: [
                ("succeeded", summary.succeeded),
                ("succeeded_before", summary.succeeded_before),
                ("failed", summary.failed),
                ("skipped", summary.skipped),
                ("stopped", summary.stopped),
                ("not_run", summary.not_run),
                ("unknown", summary.unknown),
            ],
            halted: summary.halted.map(|halt| halt.name()),
            elapsed: seconds(summary.elapsed),
            exit_code: summary.exit_code(),
            text: summary.to_string(),
        }
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, number) in self.numbers {
            dict.set_item(name, number)?;
        }
        dict.set_item("halted", self.halted)?;
        dict.set_item("elapsed", self.elapsed)?;
        dict.set_item("exit_code", self.exit_code)?;
        dict.set_item("text", &self.text)?;
        Ok(dict)
    }
}

#[pymethods]
impl BatchRun {
    /// Waits for the next event without the GIL. Returns `None` after the last.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<(&'static str, Bound<'py, PyDict>)>> {
        guarded(|| {
            self.owner.check()?;
            loop {
                // The inner `None` is the end.
                let event = repeat(py, None, |limit| self.next_within(limit))?;
                let Some(Some(event)) = event else { return Ok(None) };
                if let Some(converted) = convert(py, &event)? {
                    return Ok(Some(converted));
                }
            }
        })
    }

    /// Returns the counts so far.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guarded(|| {
            // The lock of a fork may be held for ever, by a thread that it does not have.
            self.owner.check()?;
            let counts = self.run.lock(py).as_ref().map(|run| Counts::of(run.summary()));
            counts.ok_or(Failure::Gone)?.dict(py)
        })
    }

    /// Closes the log, and returns the final counts.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guarded(|| {
            self.owner.check()?;
            let run = self.run.lock(py).take().ok_or(Failure::Gone)?;
            let summary = py.detach(|| run.finish()).map_err(Failure::Batch)?;
            Counts::of(&summary).dict(py)
        })
    }

    /// Starts nothing more; the running jobs end by themselves.
    fn drain(&self) {
        self.control.drain();
    }

    /// Starts nothing more, and stops the running jobs.
    fn stop(&self) {
        self.control.stop();
    }

    /// Kills the running jobs and drops the batch. Its log can be resumed.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            self.owner.check()?;
            py.detach(|| drop(self.run.lock_detached().take()));
            Ok(())
        })
    }
}

impl BatchRun {
    fn next_within(&self, limit: Duration) -> Result<Option<Option<Event>>, Failure> {
        let mut run = self.run.lock_detached();
        let run = run.as_mut().ok_or(Failure::Gone)?;
        match run.next_until(Instant::now().checked_add(limit)) {
            Ok(Some(event)) => Ok(Some(Some(event))),
            Ok(None) if run.is_finished() => Ok(Some(None)),
            Ok(None) => Ok(None),
            Err(error) => Err(Failure::Batch(error)),
        }
    }
}
