//! A child whose streams belong to Python.

use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex};

use pipewright::{Child as NativeChild, ChildStdin, PipeReader, PtySize};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::communicate::Communication;
use crate::ending::{code, containment_name, usage_of};
use crate::errors::{from_io, from_native};
use crate::guard::guarded;
use crate::options::command;
use crate::owner::Owner;
use crate::values::signal;
use crate::waiting::{duration, lock, repeat};

/// A child that runs, or has ended.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Child {
    owner: Owner,
    /// Taken by `close`, which ends a contained tree.
    child: Mutex<Option<Arc<NativeChild>>>,
    pid: u32,
    containment: &'static str,
    /// The parent's ends of the streams, until Python takes them.
    streams: Mutex<Streams>,
}

#[derive(Debug)]
struct Streams {
    stdin: Option<ChildStdin>,
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
}

/// Starts a child.
#[pyfunction]
pub(crate) fn spawn(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Child> {
    guarded(|| {
        let mut command = command(options)?;
        let mut child = py.detach(|| command.spawn()).map_err(|error| from_native(&error))?;
        let streams = Streams {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
        };
        let stdin = match (child.pty(), streams.stdin) {
            // What is typed at the terminal.
            (Some(pty), None) => Some(pty.writer().map_err(|e| from_io("open the terminal", &e))?),
            (_, stdin) => stdin,
        };
        Ok(Child {
            owner: Owner::this_process(),
            pid: child.id(),
            containment: containment_name(child.containment()),
            streams: Mutex::new(Streams { stdin, ..streams }),
            child: Mutex::new(Some(Arc::new(child))),
        })
    })
}

impl Child {
    fn get(&self) -> PyResult<Arc<NativeChild>> {
        self.owner.check()?;
        let child = lock(&self.child).clone();
        child.ok_or_else(|| PyValueError::new_err("the child has been closed"))
    }
}

#[pymethods]
impl Child {
    #[getter]
    fn pid(&self) -> u32 {
        self.pid
    }

    #[getter]
    fn containment(&self) -> &'static str {
        self.containment
    }

    /// Returns the descriptors of stdin, stdout and stderr, which then belong to the caller.
    fn take_streams(&self) -> (Option<i32>, Option<i32>, Option<i32>) {
        let mut streams = lock(&self.streams);
        let Streams { stdin, stdout, stderr } = &mut *streams;
        (
            stdin.take().map(|it| OwnedFd::from(it).into_raw_fd()),
            stdout.take().map(|it| OwnedFd::from(it).into_raw_fd()),
            stderr.take().map(|it| OwnedFd::from(it).into_raw_fd()),
        )
    }

    /// Waits without the GIL. Returns the exit code, or `None` if the time is up first.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<i32>> {
        guarded(|| {
            let child = self.get()?;
            let status = repeat(py, timeout, |limit| {
                child.try_wait_for(limit).map_err(|error| from_native(&error))
            })?;
            Ok(status.map(code))
        })
    }

    /// Returns the exit code, or `None` while the child runs.
    fn poll(&self) -> PyResult<Option<i32>> {
        guarded(|| {
            let status = self.get()?.try_wait().map_err(|error| from_native(&error))?;
            Ok(status.map(code))
        })
    }

    /// Kills the child and the processes that can be found, or its whole tree.
    fn kill(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            let child = self.get()?;
            py.detach(|| child.kill()).map_err(|error| from_native(&error))
        })
    }

    /// Sends a signal to the child alone. Returns false if it has ended.
    fn signal(&self, number: i32) -> PyResult<bool> {
        guarded(|| self.get()?.signal(signal(number)?).map_err(|error| from_native(&error)))
    }

    /// Sends all processes a signal, kills those that are left after the grace, and returns the exit code.
    fn stop(&self, py: Python<'_>, number: i32, grace: f64) -> PyResult<i32> {
        guarded(|| {
            let (child, signal, grace) = (self.get()?, signal(number)?, duration(grace)?);
            let status = py.detach(|| child.stop_with(signal, grace));
            status.map(code).map_err(|error| from_native(&error))
        })
    }

    /// Returns the usage of a child that has ended.
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        guarded(|| {
            let child = self.get()?;
            let handle = child.child_handle();
            let ended = handle.try_wait().map_err(|error| from_io("wait for the child", &error))?;
            let usage = ended.and_then(|ended| ended.usage);
            usage.map(|usage| usage_of(py, handle.refine_peak_memory(usage))).transpose()
        })
    }

    /// Sets the size of the child's terminal.
    fn resize(&self, rows: u16, cols: u16) -> PyResult<()> {
        guarded(|| {
            let child = self.get()?;
            let Some(pty) = child.pty() else {
                return Err(PyValueError::new_err("the child has no terminal"));
            };
            let resized = pty.resize(PtySize { rows, cols });
            resized.map_err(|error| from_io("resize the terminal", &error))
        })
    }

    /// Starts to read both streams while the input is fed. The descriptors are copied.
    #[pyo3(signature = (stdin, input, stdout, stderr))]
    fn communicate(
        &self,
        stdin: Option<i32>,
        input: Vec<u8>,
        stdout: Option<i32>,
        stderr: Option<i32>,
    ) -> PyResult<Communication> {
        guarded(|| Communication::new(self.owner, self.get()?, stdin, input, [stdout, stderr]))
    }

    /// Drops the child: a contained tree ends, and is waited for.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            self.owner.check()?;
            let child = lock(&self.child).take();
            py.detach(|| drop(child));
            Ok(())
        })
    }
}
