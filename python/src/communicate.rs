//! Both streams of a child read while its input is fed, in as many calls as the caller likes.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::{Child, ChildStdin, Handle, PipeReader};
use pipewright_os::base::wait::{self, Slot};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::errors::Failure;
use crate::guard::guarded;
use crate::large::{LARGE_BYTES, Large};
use crate::owner::Owner;
use crate::shared::Shared;
use crate::values::handle;
use crate::waiting::repeat_and;

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
    child: Option<Arc<Child>>,
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
        child: Option<Arc<Child>>,
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
    fn step(&mut self, child: Option<&Child>, until: Option<Instant>) -> io::Result<bool> {
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
    fn type_end(&mut self, child: Option<&Child>) -> io::Result<Option<Instant>> {
        const PAUSE: Duration = Duration::from_millis(10);
        let pty = child.and_then(Child::pty);
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
