//! Lines and events of a run, as they arrive.

use std::mem;
use std::time::Duration;

use pipewright::{Event, Line, Next, RunHandle, Source};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::ending::{Ending, containment_name};
use crate::errors::Failure;
use crate::guard::guarded;
use crate::options::command;
use crate::owner::Owner;
use crate::shared::Shared;
use crate::values::signal;
use crate::waiting::{Registered, drop_detached, in_seconds, repeat};

/// A stream, until its end has been returned, or it has been abandoned.
#[derive(Debug)]
enum Held<T> {
    Open(T),
    Finished,
    Abandoned,
}

/// Makes the class of a stream: its items differ, everything else is the same.
macro_rules! stream_class {
    ($name:ident, $native:ty, $item:ty, $what:literal) => {
        #[doc = $what]
        #[derive(Debug)]
        #[pyclass(frozen, module = "pipewright._pipewright")]
        pub(crate) struct $name {
            owner: Owner,
            handle: Shared<Option<RunHandle>>,
            stream: Shared<Held<$native>>,
            pid: u32,
        }

        impl $name {
            pub(crate) fn of(stream: $native) -> $name {
                let (handle, pid) = (Shared::new(Some(stream.handle())), stream.pid());
                $name {
                    owner: Owner::this_process(),
                    handle,
                    stream: Shared::new(Held::Open(stream)),
                    pid,
                }
            }

            /// Waits for an item; `None` if none has come in time. The inner `None` is the end.
            fn next_within(
                stream: &mut Held<$native>,
                limit: Duration,
            ) -> Result<Option<Option<$item>>, Failure> {
                let stream = match stream {
                    Held::Open(stream) => stream,
                    Held::Finished => return Ok(Some(None)),
                    Held::Abandoned => return Err(Failure::Gone),
                };
                match stream.next_within(limit) {
                    Next::Item(item) => item.map(|item| Some(Some(item))).map_err(Failure::Native),
                    Next::Pending => Ok(None),
                    Next::Done => Ok(Some(None)),
                }
            }
        }

        #[pymethods]
        impl $name {
            #[getter]
            fn pid(&self) -> u32 {
                self.pid
            }

            /// Returns the descriptor that becomes readable when `poll` has something to do, and the seconds after which it
            /// has in any case. Call it after each `poll`.
            fn register(&self, py: Python<'_>) -> PyResult<Registered> {
                guarded(|| {
                    self.owner.check()?;
                    let registered = match &mut *self.stream.lock(py) {
                        Held::Open(stream) => stream.wait_registered().map_err(Failure::Native),
                        Held::Finished | Held::Abandoned => Err(Failure::Gone),
                    };
                    Ok(in_seconds(registered?))
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

            /// Kills the processes, and drops the stream: its tree ends.
            fn abandon(&self, py: Python<'_>) -> PyResult<()> {
                guarded(|| {
                    self.owner.check()?;
                    py.detach(|| {
                        if let Some(handle) = self.handle.lock_detached().take() {
                            // Ignored: a process that has changed its user cannot be killed.
                            let _ = handle.kill();
                        }
                        let mut stream = self.stream.lock_detached();
                        if matches!(*stream, Held::Open(_)) {
                            *stream = Held::Abandoned;
                        }
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
                let handle = self.handle.lock(py);
                handle.as_ref().map_or("none", |handle| containment_name(handle.containment()))
            }

            /// Waits for the next item without the GIL. Returns `None` if the time is up first, and `False` at the end.
            #[pyo3(signature = (timeout=None))]
            fn next<'py>(
                &self,
                py: Python<'py>,
                timeout: Option<f64>,
            ) -> PyResult<Bound<'py, PyAny>> {
                guarded(|| {
                    self.owner.check()?;
                    let item = repeat(py, timeout, |limit| {
                        $name::next_within(&mut self.stream.lock_detached(), limit)
                    })?;
                    self.give(py, item)
                })
            }

            /// Returns the next item that has arrived; otherwise as `next`.
            fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                guarded(|| {
                    self.owner.check()?;
                    let item = $name::next_within(&mut self.stream.lock(py), Duration::ZERO);
                    self.give(py, item?)
                })
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let stream = mem::replace(self.stream.get_mut(), Held::Finished);
                drop_detached((stream, self.handle.get_mut().take()));
            }
        }

        impl $name {
            fn give<'py>(
                &self,
                py: Python<'py>,
                item: Option<Option<$item>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                match item {
                    Some(Some(item)) => self.convert(py, item),
                    Some(None) => false
                        .into_pyobject(py)
                        .map(|it| it.to_owned().into_any())
                        .map_err(Into::into),
                    None => Ok(py.None().into_bound(py)),
                }
            }
        }
    };
}

stream_class!(Lines, pipewright::Lines, Line, "The lines of a run.");
stream_class!(Events, pipewright::Events, Event, "The events of a run.");

impl Lines {
    /// Returns `(is_stderr, text, truncated)`.
    fn convert<'py>(&self, py: Python<'py>, line: Line) -> PyResult<Bound<'py, PyAny>> {
        let Line { source, text, truncated, .. } = line;
        (source == Source::Stderr, text, truncated).into_pyobject(py).map(Bound::into_any)
    }
}

/// Reads and discards the rest, waits for the end, and returns its facts.
#[pyfunction]
pub(crate) fn finish_lines(py: Python<'_>, lines: &Bound<'_, Lines>) -> PyResult<Ending> {
    guarded(|| {
        let lines = lines.get();
        lines.owner.check()?;
        // Lines that nobody takes are dropped here, so that signals are seen meanwhile.
        repeat(py, None, |limit| {
            match Lines::next_within(&mut lines.stream.lock_detached(), limit)? {
                Some(None) => Ok(Some(())),
                _ => Ok(None),
            }
        })?;
        let ending = py.detach(|| {
            let held = mem::replace(&mut *lines.stream.lock_detached(), Held::Finished);
            let Held::Open(stream) = held else { return Err(Failure::Gone) };
            *lines.handle.lock_detached() = None;
            stream.finish().map_err(Failure::Native)
        })?;
        Ok(Ending::of_ending(ending))
    })
}

impl Events {
    /// Returns `(name, value)`.
    fn convert<'py>(&self, py: Python<'py>, event: Event) -> PyResult<Bound<'py, PyAny>> {
        match event {
            Event::Started(pid) => ("started", pid).into_pyobject(py).map(Bound::into_any),
            Event::Stdout(bytes) => {
                ("stdout", PyBytes::new(py, &bytes)).into_pyobject(py).map(Bound::into_any)
            }
            Event::Stderr(bytes) => {
                ("stderr", PyBytes::new(py, &bytes)).into_pyobject(py).map(Bound::into_any)
            }
            Event::Exited(ending) => {
                // Nothing is left to signal or to read. No event loop waits for it now: its wait has led here.
                *self.handle.lock(py) = None;
                let stream = mem::replace(&mut *self.stream.lock(py), Held::Finished);
                py.detach(|| drop(stream));
                let ending = Bound::new(py, Ending::of_ending(ending))?;
                ("exited", ending).into_pyobject(py).map(Bound::into_any)
            }
            _ => Ok(py.None().into_bound(py)),
        }
    }
}

/// Starts a command whose lines are read.
#[pyfunction]
pub(crate) fn start_lines(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Lines> {
    guarded(|| {
        let mut command = command(options)?;
        Ok(Lines::of(py.detach(|| command.lines()).map_err(Failure::Native)?))
    })
}

/// Starts a command whose events are read.
#[pyfunction]
pub(crate) fn start_events(py: Python<'_>, options: &Bound<'_, PyDict>) -> PyResult<Events> {
    guarded(|| {
        let mut command = command(options)?;
        Ok(Events::of(py.detach(|| command.events()).map_err(Failure::Native)?))
    })
}
