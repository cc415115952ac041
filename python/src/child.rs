//! A child whose streams belong to Python.

use std::mem;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::{
    Child as NativeChild, ChildStdin, Containment, ExitStatus, PipeReader, PtySize, Usage,
};
use pipewright_os::base::wait::{self, Slot};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;

use crate::communicate::{Communication, Stream};
use crate::ending::{code, containment_name, usage_of};
use crate::errors::Failure;
use crate::guard::guarded;
use crate::options::command;
use crate::owner::Owner;
use crate::shared::Shared;
use crate::values::signal;
use crate::waiting::{drop_detached, duration, repeat};

/// A child that runs, or has ended.
///
/// # Drop
/// A child that runs lives on, and its tree with it. What an ended one has left behind is killed.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Child {
    owner: Owner,
    child: Shared<Held>,
    pid: u32,
    containment: &'static str,
    /// The streams that are its terminal: stdin, stdout, stderr.
    terminals: [bool; 3],
    /// The parent's ends of the streams, until Python takes them.
    streams: Shared<Streams>,
}

/// The native child, until its end has been seen and no process of its tree is left, or `close` ends the tree. What is
/// known at its end stays: another thread may still ask.
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
    fn of(child: &NativeChild) -> Result<Option<Ended>, Failure> {
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
        let reads_terminal = |stream: &Option<PipeReader>| {
            stream.as_ref().is_some_and(|it| it.most_buffered_of_terminal().is_some())
        };
        let [stdout, stderr] = [&streams.stdout, &streams.stderr].map(reads_terminal);
        let terminals = [child.pty().is_some() && streams.stdin.is_none(), stdout, stderr];
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
            terminals,
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

    /// Returns the exit code of a child that has ended, and drops the native child if its tree has no other process.
    fn ended(&self, py: Python<'_>, child: Arc<NativeChild>, status: ExitStatus) -> PyResult<i32> {
        // The end of a terminal is read through the child.
        if !self.terminals.contains(&true) {
            py.detach(|| self.close_if_over(child))?;
        }
        Ok(code(status))
    }

    fn close_if_over(&self, child: Arc<NativeChild>) -> Result<(), Failure> {
        if is_over(&child) { self.close_native(child) } else { Ok(()) }
    }

    /// Keeps what is known of the end, and drops the native child: what is left of its tree ends.
    fn close_native(&self, child: Arc<NativeChild>) -> Result<(), Failure> {
        let ended = Ended::of(&child)?;
        let mut held = self.child.lock_detached();
        let before = match *held {
            Held::Open(_) => Some(mem::replace(&mut *held, Held::Closed(ended))),
            // Another thread was faster.
            Held::Closed(_) => None,
        };
        drop(held);
        drop((before, child));
        Ok(())
    }
}

/// Returns true if the tree of a child that has ended has no other process, so that nothing is left to kill.
fn is_over(child: &NativeChild) -> bool {
    /// The most time that a supervisor gets to end. It does so at once if it has no child left.
    const SUPERVISOR_ENDS: Duration = Duration::from_millis(500);
    let handle = child.child_handle();
    let Some(tree) = handle.tree() else {
        return child.containment() != Containment::Group || !handle.group_is_alive();
    };
    if !tree.is_alive() {
        return true;
    }
    let Some(last) = tree.last() else { return false };
    let mut others = Vec::new();
    // What cannot be listed may be there.
    if tree.collect(&mut others).is_err() {
        return false;
    }
    if others.is_empty() {
        let until = Instant::now().checked_add(SUPERVISOR_ENDS);
        // Ignored: the answer is the next line's.
        let _ = wait::any(&mut [Slot::Event(last)], until);
    }
    others.is_empty() && !tree.is_alive()
}

fn closed() -> PyErr {
    PyValueError::new_err("the child has been closed")
}

impl Drop for Child {
    fn drop(&mut self) {
        let Held::Open(child) = mem::replace(self.child.get_mut(), Held::Closed(None)) else {
            return;
        };
        // A fork of the process that made it must not act on it. The end of the interpreter leaves running what runs, as
        // `subprocess` does.
        if !self.owner.is_here() || matches!(child.try_wait(), Ok(None)) {
            mem::forget(child);
            return;
        }
        // Processes that are left are waited for. Without an interpreter, they are too.
        drop_detached(child);
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
            status.map(|status| self.ended(py, child, status)).transpose()
        })
    }

    /// Returns the exit code, or `None` while the child runs.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        guarded(|| match self.held(py)? {
            Held::Open(child) => {
                let status = child.try_wait().map_err(Failure::Native)?;
                status.map(|status| self.ended(py, child, status)).transpose()
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
            let (signal, grace) = (signal(number)?, duration(grace)?);
            let child = match self.held(py)? {
                Held::Open(child) => child,
                Held::Closed(ended) => return ended.map(|it| it.code).ok_or_else(closed),
            };
            // A thread waits, so that signal handlers of Python run meanwhile.
            let (sender, receiver) = mpsc::channel();
            let stopped = Arc::clone(&child);
            let stop = move || {
                let result = stopped.stop_with(signal, grace);
                drop(stopped);
                // Ignored: the caller has been interrupted.
                let _ = sender.send(result);
            };
            let started = thread::Builder::new().name("pipewright-stop".to_owned()).spawn(stop);
            started.map_err(|error| Failure::Io("start a thread", error))?;
            let receiver = Shared::new(receiver);
            let waited =
                repeat(py, None, |limit| match receiver.lock_detached().recv_timeout(limit) {
                    Ok(result) => result.map(Some).map_err(Failure::Native),
                    Err(RecvTimeoutError::Timeout) => Ok(None),
                    Err(RecvTimeoutError::Disconnected) => Err(Failure::Gone),
                });
            match waited {
                Ok(status) => self.ended(py, child, status.unwrap_or_default()),
                Err(error) => {
                    // As for every interrupt: nothing is left running. Ignored: a process that has changed its user.
                    let _ = py.detach(|| child.kill());
                    Err(error)
                }
            }
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
        input: PyBackedBytes,
        stdout: Option<i32>,
        stderr: Option<i32>,
    ) -> PyResult<Communication> {
        guarded(|| {
            let child = match self.held(py)? {
                Held::Open(child) => Some(child),
                Held::Closed(_) => None,
            };
            let mut streams = [stdin, stdout, stderr].map(|it| it.map(Stream::Pipe));
            for (stream, is_terminal) in streams.iter_mut().zip(self.terminals) {
                if let (Some(stream), true) = (stream, is_terminal) {
                    *stream = Stream::Terminal;
                }
            }
            let [stdin, stdout, stderr] = streams;
            Ok(Communication::new(self.owner, child, stdin, input, [stdout, stderr])?)
        })
    }

    /// Drops the native child of a command that has ended if no process of its tree is left.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            let Held::Open(child) = self.held(py)? else { return Ok(()) };
            if child.try_wait().map_err(Failure::Native)?.is_none() {
                return Ok(());
            }
            Ok(py.detach(|| self.close_if_over(child))?)
        })
    }

    /// Drops the native child: a contained tree ends, and is waited for. The exit code and the usage stay.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guarded(|| {
            let Held::Open(child) = self.held(py)? else { return Ok(()) };
            Ok(py.detach(|| self.close_native(child))?)
        })
    }
}
