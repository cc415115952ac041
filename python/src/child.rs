//! A child whose streams belong to Python.

use std::mem;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::sync::Arc;

use pipewright::{Child as NativeChild, ChildStdin, PipeReader, PtySize, Usage};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::communicate::Communication;
use crate::ending::{code, containment_name, usage_of};
use crate::errors::Failure;
use crate::guard::guarded;
use crate::options::command;
use crate::owner::Owner;
use crate::shared::Shared;
use crate::values::signal;
use crate::waiting::{duration, repeat};

/// A child that runs, or has ended.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Child {
    owner: Owner,
    child: Shared<Held>,
    pid: u32,
    containment: &'static str,
    /// The parent's ends of the streams, until Python takes them.
    streams: Shared<Streams>,
}

/// The native child, until `close` ends a contained tree. What is known at its end stays: another thread may still ask.
#[derive(Debug, Clone)]
enum Held {
    Open(Arc<NativeChild>),
    Closed(Option<Ended>),
}

/// The end of a child.
#[derive(Debug, Clone, Copy)]
struct Ended {
    code: i32,
    usage: Option<Usage>,
}

impl Ended {
    fn of(child: &NativeChild) -> PyResult<Option<Ended>> {
        let handle = child.child_handle();
        let ended = handle.try_wait().map_err(|error| Failure::Io("wait for the child", error))?;
        Ok(ended.map(|ended| Ended {
            code: code(ended.status),
            usage: ended.usage.map(|usage| handle.refine_peak_memory(usage)),
        }))
    }
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
        let mut child = py.detach(|| command.spawn()).map_err(Failure::Native)?;
        let streams = Streams {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
        };
        let stdin = match (child.pty(), streams.stdin) {
            // What is typed at the terminal.
            (Some(pty), None) => {
                let writer = pty.writer();
                Some(writer.map_err(|error| Failure::Io("open the terminal", error))?)
            }
            (_, stdin) => stdin,
        };
        Ok(Child {
            owner: Owner::this_process(),
            pid: child.id(),
            containment: containment_name(child.containment()),
            streams: Shared::new(Streams { stdin, ..streams }),
            child: Shared::new(Held::Open(Arc::new(child))),
        })
    })
}

impl Child {
    fn held(&self, py: Python<'_>) -> PyResult<Held> {
        self.owner.check()?;
        Ok(self.child.lock(py).clone())
    }

    /// Returns the native child, or an error after `close`.
    fn open(&self, py: Python<'_>) -> PyResult<Arc<NativeChild>> {
        match self.held(py)? {
            Held::Open(child) => Ok(child),
            Held::Closed(_) => Err(closed()),
        }
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the child has been closed")
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
    fn take_streams(&self, py: Python<'_>) -> (Option<i32>, Option<i32>, Option<i32>) {
        let mut streams = self.streams.lock(py);
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
            let child = match self.held(py)? {
                Held::Open(child) => child,
                Held::Closed(ended) => return ended.map(|it| Some(it.code)).ok_or_else(closed),
            };
            let status =
                repeat(py, timeout, |limit| child.try_wait_for(limit).map_err(Failure::Native))?;
            Ok(status.map(code))
        })
    }

    /// Returns the exit code, or `None` while the child runs.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        guarded(|| match self.held(py)? {
            Held::Open(child) => {
                let status = child.try_wait().map_err(Failure::Native)?;
                Ok(status.map(code))
            }
            Held::Closed(ended) => Ok(ended.map(|it| it.code)),
        })
    }

    /// Kills the child and the processes that can be found, or its whole tree. Does nothing after `close`.
    fn kill(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| match self.held(py)? {
            Held::Open(child) => Ok(py.detach(|| child.kill()).map_err(Failure::Native)?),
            Held::Closed(_) => Ok(()),
        })
    }

    /// Sends a signal to the child alone. Returns false if it has ended.
    fn signal(&self, py: Python<'_>, number: i32) -> PyResult<bool> {
        guarded(|| match self.held(py)? {
            Held::Open(child) => Ok(child.signal(signal(number)?).map_err(Failure::Native)?),
            Held::Closed(_) => Ok(false),
        })
    }

    /// Sends all processes a signal, kills those that are left after the grace, and returns the exit code.
    fn stop(&self, py: Python<'_>, number: i32, grace: f64) -> PyResult<i32> {
        guarded(|| {
            let (child, signal, grace) = (self.open(py)?, signal(number)?, duration(grace)?);
            let status = py.detach(|| child.stop_with(signal, grace));
            Ok(status.map(code).map_err(Failure::Native)?)
        })
    }

    /// Returns the usage of a child that has ended.
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        guarded(|| {
            let ended = match self.held(py)? {
                Held::Open(child) => Ended::of(&child)?,
                Held::Closed(ended) => ended,
            };
            ended.and_then(|it| it.usage).map(|usage| usage_of(py, usage)).transpose()
        })
    }

    /// Sets the size of the child's terminal.
    fn resize(&self, py: Python<'_>, rows: u16, cols: u16) -> PyResult<()> {
        guarded(|| {
            let child = self.open(py)?;
            let Some(pty) = child.pty() else {
                return Err(PyValueError::new_err("the child has no terminal"));
            };
            let resized = pty.resize(PtySize { rows, cols });
            Ok(resized.map_err(|error| Failure::Io("resize the terminal", error))?)
        })
    }

    /// Starts to read both streams while the input is fed. The descriptors are copied.
    #[pyo3(signature = (stdin, input, stdout, stderr))]
    fn communicate(
        &self,
        py: Python<'_>,
        stdin: Option<i32>,
        input: Vec<u8>,
        stdout: Option<i32>,
        stderr: Option<i32>,
    ) -> PyResult<Communication> {
        guarded(|| Communication::new(self.owner, self.open(py)?, stdin, input, [stdout, stderr]))
    }

    /// Drops the native child: a contained tree ends, and is waited for. The exit code and the usage stay.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            let Held::Open(child) = self.held(py)? else { return Ok(()) };
            let ended = Ended::of(&child)?;
            let held = mem::replace(&mut *self.child.lock(py), Held::Closed(ended));
            py.detach(|| drop((held, child)));
            Ok(())
        })
    }
}
