//! A command that runs, as an object of Python owns it: its output is read to its end, or as lines or events.

use std::mem;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::time::Duration;

use pipewright::{
    Command, Error, Event, Events, Line, Lines, Next, Pipeline, RunHandle, RunningOutput, Source,
};
use pyo3::BoundObject as _;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};

use crate::ending::{Ended, Ending};
use crate::errors::{Failure, guarded};
use crate::options::signal;
use crate::shared::{Owner, Registered, Shared, drop_detached, in_seconds, repeat, repeat_and};

/// A run, by its way to be read.
#[derive(Debug)]
pub(crate) enum Reading {
    Output(RunningOutput),
    Lines(Lines),
    Events(Events),
}

/// The next item of a run.
enum Item {
    Output(Ended),
    Line(Line),
    Event(Event),
}

/// Starts what has these verbs, by the name of what is read of it.
macro_rules! start {
    ($command:expr, $how:expr) => {
        match $how {
            How::Output => $command.start_output().map(Reading::Output),
            How::Lines => $command.lines().map(Reading::Lines),
            How::Events => $command.events().map(Reading::Events),
        }
        .map_err(Failure::Native)
    };
}

/// The ways to read a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    Output,
    Lines,
    Events,
}

impl How {
    pub(crate) fn named(name: &str) -> PyResult<How> {
        match name {
            "output" => Ok(How::Output),
            "lines" => Ok(How::Lines),
            "events" => Ok(How::Events),
            _ => Err(PyValueError::new_err(format!("{name:?} cannot be read"))),
        }
    }

    pub(crate) fn start(self, command: &mut Command) -> Result<Reading, Failure> {
        start!(command, self)
    }

    pub(crate) fn start_all(self, mut pipeline: Pipeline<'_>) -> Result<Reading, Failure> {
        start!(pipeline, self)
    }
}

impl Reading {
    fn handle(&self) -> RunHandle {
        match self {
            Reading::Output(it) => it.handle(),
            Reading::Lines(it) => it.handle(),
            Reading::Events(it) => it.handle(),
        }
    }

    fn pid(&self) -> u32 {
        match self {
            Reading::Output(it) => it.pid(),
            Reading::Lines(it) => it.pid(),
            Reading::Events(it) => it.pid(),
        }
    }

    /// Waits for an item; `None` if none has come in time. The inner `None` is the end of a stream.
    fn next_within(
        &mut self,
        limit: Duration,
        large: Option<&Large>,
    ) -> Result<Option<Option<Item>>, Failure> {
        match self {
            Reading::Output(run) => {
                let waited = run.wait_for_bytes(limit, LARGE_BYTES).map_err(Failure::Native)?;
                let Some(output) = waited else {
                    if let Some(large) = large.filter(|_| run.bytes_so_far() >= LARGE_BYTES) {
                        large.take(run);
                    }
                    return Ok(None);
                };
                let stages = run.handle().ends().map_err(Failure::Native)?;
                Ok(Some(Some(Item::Output(Ending::of_output(output, stages)))))
            }
            Reading::Lines(it) => as_item(it.next_within(limit), Item::Line),
            Reading::Events(it) => as_item(it.next_within(limit), Item::Event),
        }
    }
}

fn as_item<T>(
    next: Next<Result<T, Error>>,
    make: fn(T) -> Item,
) -> Result<Option<Option<Item>>, Failure> {
    match next {
        Next::Item(item) => Ok(Some(Some(make(item.map_err(Failure::Native)?)))),
        Next::Pending => Ok(None),
        Next::Done => Ok(Some(None)),
    }
}

/// A run, until its end has been returned.
#[expect(clippy::large_enum_variant, reason = "there is one in each object, and it mostly is open")]
#[derive(Debug)]
enum Held {
    Open(Reading),
    /// The end of a stream has been returned.
    Finished,
    /// The result of an output has been returned, or the run has been abandoned.
    Gone,
}

impl Held {
    fn next_within(
        &mut self,
        limit: Duration,
        large: Option<&Large>,
    ) -> Result<Option<Option<Item>>, Failure> {
        match self {
            Held::Open(reading) => reading.next_within(limit, large),
            Held::Finished => Ok(Some(None)),
            Held::Gone => Err(Failure::Gone),
        }
    }
}

/// A run.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Run {
    owner: Owner,
    pid: u32,
    /// `None` once nothing is left to signal.
    handle: Shared<Option<RunHandle>>,
    held: Shared<Held>,
    /// `None` for lines and events.
    large: Option<Large>,
}

impl Run {
    pub(crate) fn of(reading: Reading) -> Run {
        Run {
            owner: Owner::this_process(),
            pid: reading.pid(),
            handle: Shared::new(Some(reading.handle())),
            large: matches!(reading, Reading::Output(_)).then(Large::new),
            held: Shared::new(Held::Open(reading)),
        }
    }

    /// Drops what is left of the run.
    fn end_as(&self, py: Python<'_>, state: Held) {
        *self.handle.lock(py) = None;
        let held = mem::replace(&mut *self.held.lock(py), state);
        py.detach(|| drop(held));
    }

    fn add_large(&self, py: Python<'_>) -> PyResult<()> {
        self.large.as_ref().map_or(Ok(()), |large| large.add(py))
    }

    /// Returns `None` for nothing yet, and `False` for the end of a stream.
    fn give<'py>(
        &self,
        py: Python<'py>,
        item: Option<Option<Item>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match item {
            None => Ok(py.None().into_bound(py)),
            Some(None) => Ok(PyBool::new(py, false).to_owned().into_any()),
            Some(Some(Item::Line(Line { source, text, truncated, .. }))) => {
                tuple(py, (source == Source::Stderr, text, truncated))
            }
            Some(Some(Item::Event(event))) => self.give_event(py, event),
            Some(Some(Item::Output((ending, stdout, stderr)))) => {
                // Nothing is left to signal. The descriptor stays open: an event loop may still wait for it.
                *self.handle.lock(py) = None;
                tuple(py, (ending, self.stream(py, 0, &stdout)?, self.stream(py, 1, &stderr)?))
            }
        }
    }

    fn stream<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        last: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        match &self.large {
            Some(large) => large.finish(py, index, last),
            None => Ok(PyBytes::new(py, last)),
        }
    }

    fn give_event<'py>(&self, py: Python<'py>, event: Event) -> PyResult<Bound<'py, PyAny>> {
        match event {
            Event::Started(pid) => tuple(py, ("started", pid)),
            Event::Stdout(bytes) => tuple(py, ("stdout", PyBytes::new(py, &bytes))),
            Event::Stderr(bytes) => tuple(py, ("stderr", PyBytes::new(py, &bytes))),
            Event::Exited(ending) => {
                // Nothing is left to read either. No event loop waits for it now: its wait has led here.
                self.end_as(py, Held::Finished);
                tuple(py, ("exited", Ending::of_ending(ending)))
            }
            _ => Ok(py.None().into_bound(py)),
        }
    }
}

fn tuple<'py, T>(py: Python<'py>, values: T) -> PyResult<Bound<'py, PyAny>>
where
    T: IntoPyObject<'py, Error = PyErr>,
{
    Ok(values.into_pyobject(py)?.into_any().into_bound())
}

impl Drop for Run {
    fn drop(&mut self) {
        let held = mem::replace(self.held.get_mut(), Held::Gone);
        drop_detached((held, self.handle.get_mut().take()));
    }
}

#[pymethods]
impl Run {
    #[getter]
    fn pid(&self) -> u32 {
        self.pid
    }

    #[getter]
    fn containment(&self, py: Python<'_>) -> &'static str {
        let handle = self.handle.lock(py);
        handle.as_ref().map_or("none", |handle| handle.containment().name())
    }

    /// Returns the descriptor of a piped stdin, once; it then belongs to the caller. The first wait closes one that
    /// nobody has taken.
    fn take_stdin(&self, py: Python<'_>) -> Option<i32> {
        let taken = match &mut *self.held.lock(py) {
            Held::Open(Reading::Lines(it)) => it.take_stdin(),
            Held::Open(Reading::Events(it)) => it.take_stdin(),
            _ => None,
        };
        taken.map(|it| OwnedFd::from(it).into_raw_fd())
    }

    /// Waits without the GIL for the next line or event, or for the end of an output with both streams. Returns `None`
    /// if the time is up first, and `False` at the end of lines and events.
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            self.owner.check()?;
            let item = repeat_and(
                py,
                timeout,
                |limit| self.held.lock_detached().next_within(limit, self.large.as_ref()),
                |py| self.add_large(py),
            )?;
            if let Some(Some(Item::Output(_))) = &item {
                self.end_as(py, Held::Gone);
            }
            self.give(py, item)
        })
    }

    /// Returns what has arrived; otherwise as `wait`.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        guarded(|| {
            self.owner.check()?;
            let item = self.held.lock(py).next_within(Duration::ZERO, self.large.as_ref());
            self.add_large(py)?;
            self.give(py, item?)
        })
    }

    /// Returns the descriptor that becomes readable when `poll` has something to do, and the seconds after which it has
    /// in any case. Call it after each `poll`.
    fn register(&self, py: Python<'_>) -> PyResult<Registered> {
        guarded(|| {
            self.owner.check()?;
            let registered = match &mut *self.held.lock(py) {
                Held::Open(Reading::Output(it)) => it.wait_registered(),
                Held::Open(Reading::Lines(it)) => it.wait_registered(),
                Held::Open(Reading::Events(it)) => it.wait_registered(),
                Held::Finished | Held::Gone => return Err(Failure::Gone.into()),
            };
            Ok(in_seconds(registered.map_err(Failure::Native)?))
        })
    }

    /// Drops what is left of an output that has ended, when no event loop waits for its descriptor any more.
    fn release(&self, py: Python<'_>) {
        self.end_as(py, Held::Gone);
    }

    /// Reads and drops the rest of the lines, waits for the end, and returns its facts.
    fn finish(&self, py: Python<'_>) -> PyResult<Ending> {
        guarded(|| {
            self.owner.check()?;
            // Lines that nobody takes are dropped here, so that signals are seen meanwhile.
            repeat(py, None, |limit| {
                Ok(matches!(self.held.lock_detached().next_within(limit, None)?, Some(None))
                    .then_some(()))
            })?;
            let ending = py.detach(|| {
                let held = mem::replace(&mut *self.held.lock_detached(), Held::Finished);
                let Held::Open(Reading::Lines(lines)) = held else { return Err(Failure::Gone) };
                *self.handle.lock_detached() = None;
                lines.finish().map_err(Failure::Native)
            })?;
            Ok(Ending::of_ending(ending))
        })
    }

    /// Returns a copy of the output so far.
    fn so_far<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        guarded(|| {
            self.owner.check()?;
            let Some(large) = &self.large else { return Err(Failure::Gone.into()) };
            let [stdout, stderr] = match &mut *self.held.lock(py) {
                Held::Open(Reading::Output(it)) => it.so_far(),
                _ => Default::default(),
            };
            Ok((large.so_far(py, 0, &stdout)?, large.so_far(py, 1, &stderr)?))
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
                let mut held = self.held.lock_detached();
                if matches!(*held, Held::Open(_)) {
                    *held = Held::Gone;
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
}

// Large outputs. They grow in a `BytesIO` while the command runs, whose memory becomes the result: a copy of all at the
// end would take as long as reading.

/// The number of bytes from which an output is large.
pub(crate) const LARGE_BYTES: usize = 1 << 20;

/// The parts of stdout and stderr so far, if they are large. One thread at a time adds some.
#[derive(Debug)]
pub(crate) struct Large {
    files: Shared<[Option<Py<PyAny>>; 2]>,
    /// Bytes that are in no file yet.
    buffers: Shared<[Vec<u8>; 2]>,
}

impl Large {
    pub(crate) fn new() -> Large {
        Large { files: Shared::new([None, None]), buffers: Shared::new([Vec::new(), Vec::new()]) }
    }

    /// Takes the bytes that a run has captured. Their lock is held for a moment only.
    pub(crate) fn take(&self, run: &mut RunningOutput) {
        run.take_so_far(&mut self.buffers.lock_detached());
    }

    /// Takes the bytes of one stream, and leaves an empty buffer.
    pub(crate) fn take_of(&self, index: usize, bytes: &mut Vec<u8>) {
        let mut buffers = self.buffers.lock_detached();
        match &mut buffers[index] {
            buffer if buffer.is_empty() => mem::swap(buffer, bytes),
            buffer => buffer.append(bytes),
        }
    }

    /// Adds the bytes that have been taken.
    pub(crate) fn add(&self, py: Python<'_>) -> PyResult<()> {
        let mut buffers = mem::take(&mut *self.buffers.lock(py));
        for (index, buffer) in buffers.iter_mut().enumerate().filter(|(_, it)| !it.is_empty()) {
            let file = match self.file(py, index) {
                Some(file) => file,
                None => {
                    let file = py.import("io")?.getattr("BytesIO")?.call0()?;
                    self.files.lock(py)[index] = Some(file.clone().unbind());
                    file
                }
            };
            file.call_method1("write", (bytes_of(py, &[buffer])?,))?;
            buffer.clear();
        }
        // The run reads into their memory again.
        *self.buffers.lock(py) = buffers;
        Ok(())
    }

    /// Returns the parts of a stream and these last bytes, without a copy, and forgets them.
    pub(crate) fn finish<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        last: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let Some(file) = self.file(py, index) else { return bytes_of(py, &[last]) };
        file.call_method1("write", (bytes_of(py, &[last])?,))?;
        self.files.lock(py)[index] = None;
        Ok(file.call_method0("getvalue")?.cast_into()?)
    }

    /// Returns a copy of the parts of a stream and these last bytes.
    pub(crate) fn so_far<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        last: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let Some(file) = self.file(py, index) else { return bytes_of(py, &[last]) };
        let first = file.call_method0("getvalue")?.cast_into::<PyBytes>()?;
        bytes_of(py, &[first.as_bytes(), last])
    }

    fn file<'py>(&self, py: Python<'py>, index: usize) -> Option<Bound<'py, PyAny>> {
        self.files.lock(py)[index].as_ref().map(|it| it.clone_ref(py).into_bound(py))
    }
}

/// Makes `bytes` of these parts. Without memory for a large one, that is a `MemoryError`.
pub(crate) fn bytes_of<'py>(py: Python<'py>, parts: &[&[u8]]) -> PyResult<Bound<'py, PyBytes>> {
    let count = parts.iter().map(|part| part.len()).sum();
    match parts {
        [part] if count < LARGE_BYTES => Ok(PyBytes::new(py, part)),
        parts => PyBytes::new_with(py, count, |mut room| {
            for part in parts {
                let (here, rest) = room.split_at_mut(part.len());
                here.copy_from_slice(part);
                room = rest;
            }
            Ok(())
        }),
    }
}
