//! A child whose streams belong to Python, and both of its streams read while its input is fed.

use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use pipewright::{
    Child as NativeChild, ChildStdin, Containment, ExitStatus, Handle, PipeReader, PtySize, Usage,
};
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::{EventSource, WaitEvent as _};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use crate::ending::{code, usage_of};
use crate::errors::{Failure, guarded};
use crate::options::{command, handle, signal};
use crate::run::{LARGE_BYTES, Large};
use crate::shared::{Owner, Shared, drop_detached, duration, repeat, repeat_and};

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
            containment: child.containment().name(),
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
            py.detach(|| self.close_if_over(child, SUPERVISOR_ENDS))?;
        }
        Ok(code(status))
    }

    /// Returns false if a process of the tree may be left.
    fn close_if_over(&self, child: Arc<NativeChild>, limit: Duration) -> Result<bool, Failure> {
        if !is_over(&child, limit) {
            return Ok(false);
        }
        self.close_native(child)?;
        Ok(true)
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

/// The most time that a supervisor gets to end. It does so at once if it has no child left.
const SUPERVISOR_ENDS: Duration = Duration::from_millis(500);

/// Returns true if the tree of a child that has ended has no other process, so that nothing is left to kill. Its
/// supervisor gets that time to end.
fn is_over(child: &NativeChild, limit: Duration) -> bool {
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
        let until = Instant::now().checked_add(limit);
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
        // A fork of the process that made it must not act on it. The end of the interpreter leaves running what runs,
        // as `subprocess` does.
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

    /// Returns the descriptor that is readable once the child has ended. It is closed with the child. `None`: nothing
    /// tells, and `poll` has to be called now and then.
    fn end_descriptor(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        guarded(|| {
            let child = self.open(py)?;
            Ok(match child.child_handle().source() {
                EventSource::Readable(descriptor) => Some(descriptor.as_raw_fd()),
                _ => None,
            })
        })
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

    /// Returns true once the child has ended. Waits for nothing: what is left of its tree is `poll`'s to see.
    fn has_ended(&self, py: Python<'_>) -> PyResult<bool> {
        guarded(|| match self.held(py)? {
            Held::Open(child) => Ok(child.try_wait().map_err(Failure::Native)?.is_some()),
            Held::Closed(_) => Ok(true),
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

    /// Drops the native child of a command that has ended if no process of its tree is left. Its supervisor gets
    /// that time to end. Returns false if the native child is still there.
    #[pyo3(signature = (limit=None))]
    fn release(&self, py: Python<'_>, limit: Option<f64>) -> PyResult<bool> {
        guarded(|| {
            let limit = limit.map(duration).transpose()?.unwrap_or(SUPERVISOR_ENDS);
            let Held::Open(child) = self.held(py)? else { return Ok(true) };
            if child.try_wait().map_err(Failure::Native)?.is_none() {
                return Ok(false);
            }
            Ok(py.detach(|| self.close_if_over(child, limit))?)
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

/// The time without output after which reading ends, once the child has: as `pipewright::Linger`'s default.
const QUIET: Duration = Duration::from_millis(250);
/// The time after which reading ends in any case.
const CAP: Duration = Duration::from_secs(5);

/// The state between two calls.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Communication {
    owner: Owner,
    state: Shared<State>,
    large: Large,
}

#[derive(Debug)]
struct State {
    /// `None` if the child had ended before, and once all has been read.
    child: Option<Arc<NativeChild>>,
    is_over: bool,
    /// stdout, stderr, stdin.
    slots: [Slot<'static>; 3],
    kept: [Vec<u8>; 2],
    input: Input,
    /// The times of the end of the child, and of the last output after it.
    ended: Option<(Instant, Instant)>,
    held_open: bool,
}

/// The streams that take part: pipes of Python, by number, which are copied; or the child's terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stream {
    Pipe(i32),
    Terminal,
}

impl Communication {
    pub(crate) fn new(
        owner: Owner,
        child: Option<Arc<NativeChild>>,
        stdin: Option<Stream>,
        input: PyBackedBytes,
        outputs: [Option<Stream>; 2],
    ) -> Result<Communication, Failure> {
        let cannot_open = |error| Failure::Io("open the terminal", error);
        let pty = child.as_ref().and_then(|child| child.pty());
        if let Some(pty) = pty {
            // Python's files of it had to block.
            pty.make_nonblocking().map_err(cannot_open)?;
        }
        let reader = |stream: Option<Stream>| -> Result<Slot<'static>, Failure> {
            let pipe = match (stream, pty) {
                (Some(Stream::Pipe(number)), _) => PipeReader::from(handle(number)?),
                (Some(Stream::Terminal), Some(pty)) => pty.reader().map_err(cannot_open)?,
                _ => return Ok(Slot::Off),
            };
            Ok(Slot::Read(pipe, Vec::new()))
        };
        let types_end = matches!(stdin, Some(Stream::Terminal));
        let pipe = match (stdin, pty) {
            (Some(Stream::Pipe(number)), _) if !input.is_empty() => {
                let pipe: Handle = handle(number)?;
                Some(ChildStdin::from(pipe))
            }
            (Some(Stream::Terminal), Some(pty)) => Some(pty.writer().map_err(cannot_open)?),
            _ => None,
        };
        let input = Input::new(pipe, input, types_end);
        let slots = [reader(outputs[0])?, reader(outputs[1])?, Slot::Off];
        let kept = [Vec::new(), Vec::new()];
        let ended = child.is_none().then(Instant::now).map(|now| (now, now));
        let state = State { child, is_over: false, slots, kept, input, ended, held_open: false };
        Ok(Communication { owner, state: Shared::new(state), large: Large::new() })
    }

    /// Takes steps for at most that long. Returns `None` if the time is up first, or an output is large, whose part has
    /// been taken then.
    fn run_for(&self, limit: Duration) -> Result<Option<()>, Failure> {
        let mut state = self.state.lock_detached();
        let until = Instant::now().checked_add(limit);
        loop {
            if state.is_done() {
                return Ok(Some(()));
            }
            let child = state.child.clone();
            let stepped = state.step(child.as_deref(), until);
            let has_ended = stepped.map_err(|error| Failure::Io("read the output", error))?;
            if let (true, Some(child)) = (has_ended, child) {
                child.try_wait().map_err(Failure::Native)?;
            }
            if self.take_large(&mut state) || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
        }
    }

    /// Takes what a stream has, if that is large, and returns true then.
    fn take_large(&self, state: &mut State) -> bool {
        let mut is_large = false;
        for index in 0..2 {
            let bytes = match &mut state.slots[index] {
                Slot::Read(_, bytes) => bytes,
                _ => &mut state.kept[index],
            };
            if bytes.len() >= LARGE_BYTES {
                self.large.take_of(index, bytes);
                is_large = true;
            }
        }
        is_large
    }
}

impl State {
    fn is_reading(&self) -> bool {
        self.slots.iter().take(2).any(|slot| matches!(slot, Slot::Read(..)))
    }

    /// Returns the time at which reading ends although something holds a stream open.
    fn give_up(&self) -> Option<Instant> {
        let (ended, last) = self.ended?;
        Some((last + QUIET).min(ended + CAP))
    }

    fn is_done(&mut self) -> bool {
        if self.is_over || self.ended.is_none() {
            return self.is_over;
        }
        if self.is_reading() && self.give_up().is_some_and(|time| Instant::now() < time) {
            return false;
        }
        self.held_open |= self.is_reading();
        self.close();
        (self.child, self.is_over) = (None, true);
        true
    }

    /// Closes the ends of all streams. What was read is kept.
    fn close(&mut self) {
        for (slot, kept) in self.slots.iter_mut().zip(&mut self.kept) {
            if let Slot::Read(_, bytes) | Slot::ReadDone(_, bytes, _) = mem::take(slot) {
                *kept = bytes;
            }
        }
        self.slots[2] = Slot::Off;
        self.input.close();
    }

    /// Waits once. Returns true if the child has just ended.
    fn step(&mut self, child: Option<&NativeChild>, until: Option<Instant>) -> io::Result<bool> {
        if matches!(self.slots[2], Slot::Off) {
            self.slots[2] = self.input.next();
        }
        let retry = match self.slots[2] {
            Slot::Off => self.input.type_end(child)?,
            _ => None,
        };
        let until = [until, self.give_up(), retry].into_iter().flatten().min();
        let exit = match child.filter(|_| self.ended.is_none()) {
            Some(child) => Slot::Event(child.child_handle()),
            None => Slot::Off,
        };
        let [stdout, stderr, stdin] = mem::take(&mut self.slots);
        let mut slots = [stdout, stderr, stdin, exit];
        let waited = wait::any(&mut slots, until);
        let [stdout, stderr, stdin, exit] = slots;
        let just_ended = matches!(exit, Slot::EventDone);
        self.slots = [stdout.detach(), stderr.detach(), stdin.detach()];
        waited?;
        let now = Instant::now();
        if just_ended {
            self.ended = Some((now, now));
        }
        for index in 0..2 {
            self.take_output(index, now)?;
        }
        if let Slot::WriteDone(pipe, _, result) = done(&mut self.slots[2]) {
            self.input.note(pipe, result)?;
        }
        Ok(just_ended)
    }

    fn take_output(&mut self, index: usize, now: Instant) -> io::Result<()> {
        /// The least room of a read.
        const ROOM: usize = 128 << 10;
        let Slot::ReadDone(pipe, mut bytes, result) = done(&mut self.slots[index]) else {
            return Ok(());
        };
        if result? == 0 {
            self.kept[index] = bytes;
            return Ok(());
        }
        if bytes.capacity() - bytes.len() < ROOM {
            // Doubles, as a vector does.
            let more = bytes.len().max(ROOM);
            bytes.try_reserve(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        self.slots[index] = Slot::Read(pipe, bytes);
        if let Some((_, last)) = &mut self.ended {
            *last = now;
        }
        Ok(())
    }

    /// Returns the last bytes of a stream so far.
    fn last(&self, index: usize) -> &[u8] {
        match &self.slots[index] {
            Slot::Read(_, bytes) | Slot::ReadDone(_, bytes, _) => bytes,
            _ => &self.kept[index],
        }
    }
}

/// Takes a slot that is done.
fn done(slot: &mut Slot<'static>) -> Slot<'static> {
    match slot {
        Slot::ReadDone(..) | Slot::WriteDone(..) => mem::take(slot),
        _ => Slot::Off,
    }
}

/// The input on its way to the child, a part at a time: the whole is Python's, and is not copied.
#[derive(Debug)]
struct Input {
    /// `None` while a write has it, and after the end.
    pipe: Option<ChildStdin>,
    whole: PyBackedBytes,
    /// The place in the whole where the part begins.
    begin: usize,
    part: Arc<Vec<u8>>,
    /// The number of bytes of the part that have been written.
    written: usize,
    /// The number of times that the end of the input has still to be typed at a terminal.
    ends_to_type: u8,
}

impl Input {
    fn new(pipe: Option<ChildStdin>, whole: PyBackedBytes, types_end: bool) -> Input {
        // After an unfinished line, the first one only hands that line over.
        let ends_to_type = match types_end {
            true if whole.last().is_some_and(|byte| *byte != b'\n') => 2,
            true => 1,
            false => 0,
        };
        Input { pipe, whole, begin: 0, part: Arc::default(), written: 0, ends_to_type }
    }

    /// Returns the next write. Closes the pipe when all has been written.
    fn next(&mut self) -> Slot<'static> {
        /// The size of a part: more than most pipes take at once.
        const PART_BYTES: usize = 256 << 10;
        let Some(pipe) = self.pipe.take() else { return Slot::Off };
        if self.written == self.part.len() {
            self.begin += self.part.len();
            let left = self.whole.get(self.begin..).unwrap_or_default();
            if left.is_empty() {
                return Slot::Off;
            }
            // Reuses the memory.
            let mut part = Arc::try_unwrap(mem::take(&mut self.part)).unwrap_or_default();
            part.clear();
            part.extend_from_slice(left.get(..PART_BYTES).unwrap_or(left));
            (self.part, self.written) = (Arc::new(part), 0);
        }
        Slot::Write(pipe, Arc::clone(&self.part), self.written)
    }

    fn note(&mut self, pipe: ChildStdin, result: io::Result<usize>) -> io::Result<()> {
        match result {
            Ok(count) => self.written += count,
            // The child does not want the rest.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.close();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.pipe = Some(pipe);
        Ok(())
    }

    /// Types the end of the input. Returns the time to try again at, if the terminal takes nothing now.
    fn type_end(&mut self, child: Option<&NativeChild>) -> io::Result<Option<Instant>> {
        const PAUSE: Duration = Duration::from_millis(10);
        let pty = child.and_then(NativeChild::pty);
        while let (1.., Some(pty)) = (self.ends_to_type, pty) {
            match pty.send_eof() {
                Ok(()) => self.ends_to_type -= 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Instant::now().checked_add(PAUSE));
                }
                // Nobody has the terminal open any more.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.ends_to_type = 0,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn close(&mut self) {
        (self.pipe, self.ends_to_type) = (None, 0);
    }
}

/// Both streams.
type Two<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl Communication {
    /// Continues without the GIL. Returns true once the child has ended and its output has been read.
    #[pyo3(signature = (timeout=None))]
    fn run(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        guarded(|| {
            self.owner.check()?;
            let run = |limit| self.run_for(limit);
            let done = repeat_and(py, timeout, run, |py| self.large.add(py))?;
            // What the last step has taken.
            self.large.add(py)?;
            Ok(done.is_some())
        })
    }

    /// Returns a copy of both streams so far.
    fn so_far<'py>(&self, py: Python<'py>) -> PyResult<Two<'py>> {
        guarded(|| {
            let state = self.state.lock(py);
            let last = [state.last(0).to_vec(), state.last(1).to_vec()];
            drop(state);
            Ok((self.large.so_far(py, 0, &last[0])?, self.large.so_far(py, 1, &last[1])?))
        })
    }

    /// Returns both streams, once, without a copy of a large one.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Two<'py>> {
        guarded(|| {
            let last = mem::take(&mut self.state.lock(py).kept);
            Ok((self.large.finish(py, 0, &last[0])?, self.large.finish(py, 1, &last[1])?))
        })
    }

    /// Closes the ends of all streams: the command gets no more input, and nothing more is read.
    fn close(&self, py: Python<'_>) {
        self.state.lock(py).close();
    }

    /// Returns true if something still held a stream open when reading ended.
    #[getter]
    fn held_open(&self, py: Python<'_>) -> bool {
        self.state.lock(py).held_open
    }
}
