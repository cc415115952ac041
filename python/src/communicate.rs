//! Both streams of a child read while its input is fed, in as many calls as the caller likes.

use std::mem;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::{Child, ChildStdin, Handle, PipeReader};
use pipewright_os::base::memory;
use pipewright_os::base::wait::{self, Slot};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Failure;
use crate::guard::guarded;
use crate::owner::Owner;
use crate::shared::Shared;
use crate::values::handle;
use crate::waiting::repeat;

/// The time without output after which reading ends, once the child has: as `pipewright::Linger`'s default.
const QUIET: Duration = Duration::from_millis(250);
/// The time after which reading ends in any case.
const CAP: Duration = Duration::from_secs(5);

/// The size from which an only output counts as large, so that the caller reads the rest: a copy of all at the end would
/// take a third of the time.
const LARGE_BYTES: usize = 1 << 20;

/// The state between two calls.
#[derive(Debug)]
#[pyclass(frozen, module = "pipewright._pipewright")]
pub(crate) struct Communication {
    owner: Owner,
    child: Arc<Child>,
    state: Shared<State>,
}

#[derive(Debug)]
struct State {
    /// stdout, stderr, stdin.
    slots: [Slot<'static>; 3],
    kept: [Vec<u8>; 2],
    input: Arc<Vec<u8>>,
    written: usize,
    /// The times of the end of the child, and of the last output after it.
    ended: Option<(Instant, Instant)>,
    held_open: bool,
}

impl Communication {
    pub(crate) fn new(
        owner: Owner,
        child: Arc<Child>,
        stdin: Option<i32>,
        input: Vec<u8>,
        outputs: [Option<i32>; 2],
    ) -> PyResult<Communication> {
        let reader = |number: Option<i32>| -> PyResult<Slot<'static>> {
            let Some(number) = number else { return Ok(Slot::Off) };
            Ok(Slot::Read(PipeReader::from(handle(number)?), Vec::new()))
        };
        let input = Arc::new(input);
        let writer = match stdin {
            Some(number) if !input.is_empty() => {
                let pipe: Handle = handle(number)?;
                Slot::Write(ChildStdin::from(pipe), Arc::clone(&input), 0)
            }
            _ => Slot::Off,
        };
        let slots = [reader(outputs[0])?, reader(outputs[1])?, writer];
        let kept = [Vec::new(), Vec::new()];
        let state = State { slots, kept, input, written: 0, ended: None, held_open: false };
        Ok(Communication { owner, child, state: Shared::new(state) })
    }

    /// Takes steps for at most that long. Returns `None` if the time is up first.
    fn run_for(&self, limit: Duration) -> Result<Option<Pause>, Failure> {
        let mut state = self.state.lock_detached();
        let until = Instant::now().checked_add(limit);
        loop {
            if state.is_done() {
                return Ok(Some(Pause::Done));
            }
            if state.large().is_some() {
                return Ok(Some(Pause::Large));
            }
            let stepped = state.step(&self.child, until);
            if stepped.map_err(|error| Failure::Io("read the output", error))? {
                self.child.try_wait().map_err(Failure::Native)?;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(state.is_done().then_some(Pause::Done));
            }
        }
    }
}

/// The reason why reading pauses before the time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    Done,
    /// The caller should read the rest.
    Large,
}

impl State {
    fn is_reading(&self) -> bool {
        self.slots.iter().take(2).any(|slot| matches!(slot, Slot::Read(..)))
    }

    /// Returns the index of a stream that is large, the only one, and not at its end, if nothing else is left to do.
    fn large(&self) -> Option<usize> {
        let [stdout, stderr, stdin] = &self.slots;
        let (index, bytes) = match (stdout, stderr, stdin) {
            (Slot::Read(_, bytes), Slot::Off, Slot::Off) => (0, bytes),
            (Slot::Off, Slot::Read(_, bytes), Slot::Off) => (1, bytes),
            _ => return None,
        };
        (bytes.len() >= LARGE_BYTES && self.ended.is_none()).then_some(index)
    }

    /// Returns the time at which reading ends although something holds a stream open.
    fn give_up(&self) -> Option<Instant> {
        let (ended, last) = self.ended?;
        Some((last + QUIET).min(ended + CAP))
    }

    fn is_done(&mut self) -> bool {
        if self.ended.is_none() {
            return false;
        }
        if self.is_reading() && self.give_up().is_some_and(|time| Instant::now() < time) {
            return false;
        }
        self.held_open |= self.is_reading();
        for (slot, kept) in self.slots.iter_mut().zip(&mut self.kept) {
            if let Slot::Read(_, bytes) | Slot::ReadDone(_, bytes, _) = mem::take(slot) {
                *kept = bytes;
            }
        }
        self.slots[2] = Slot::Off;
        true
    }

    /// Waits once. Returns true if the child has just ended.
    fn step(&mut self, child: &Child, until: Option<Instant>) -> std::io::Result<bool> {
        let until = [until, self.give_up()].into_iter().flatten().min();
        let exit = match self.ended {
            None => Slot::Event(child.child_handle()),
            Some(_) => Slot::Off,
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
        self.take_written()?;
        Ok(just_ended)
    }

    fn take_output(&mut self, index: usize, now: Instant) -> std::io::Result<()> {
        /// The least room of a read.
        const ROOM: usize = 128 << 10;
        /// The size from which huge pages are requested: a large capture waits mostly for page faults.
        const HUGE_FROM_BYTES: usize = 4 << 20;
        if !matches!(self.slots[index], Slot::ReadDone(..)) {
            return Ok(());
        }
        if let Slot::ReadDone(pipe, mut bytes, result) = mem::take(&mut self.slots[index]) {
            let count = result?;
            if count == 0 {
                self.kept[index] = bytes;
                return Ok(());
            }
            if bytes.capacity() - bytes.len() < ROOM {
                // Doubles, as a vector does.
                let more = bytes.len().max(ROOM);
                bytes.try_reserve(more).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
                if bytes.capacity() >= HUGE_FROM_BYTES {
                    memory::advise_huge_pages(&mut bytes);
                }
            }
            self.slots[index] = Slot::Read(pipe, bytes);
            if let Some((_, last)) = &mut self.ended {
                *last = now;
            }
        }
        Ok(())
    }

    fn take_written(&mut self) -> std::io::Result<()> {
        if !matches!(self.slots[2], Slot::WriteDone(..)) {
            return Ok(());
        }
        if let Slot::WriteDone(pipe, bytes, result) = mem::take(&mut self.slots[2]) {
            match result {
                Ok(count) => self.written += count,
                // The child does not want the rest.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                    self.written = self.input.len();
                }
                Err(error) => return Err(error),
            }
            if self.written < self.input.len() {
                self.slots[2] = Slot::Write(pipe, bytes, self.written);
            }
        }
        Ok(())
    }

    /// Returns the bytes of a stream so far.
    fn so_far(&self, index: usize) -> &[u8] {
        match &self.slots[index] {
            Slot::Read(_, bytes) | Slot::ReadDone(_, bytes, _) => bytes,
            _ => &self.kept[index],
        }
    }
}

#[pymethods]
impl Communication {
    /// Continues without the GIL. Returns true once the child has ended and its output has been read, and `None` if the
    /// caller should read the rest of the only output, which is large: see `take_large`.
    #[pyo3(signature = (timeout=None))]
    fn run(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<bool>> {
        guarded(|| {
            self.owner.check()?;
            let pause = repeat(py, timeout, |limit| self.run_for(limit))?;
            Ok(match pause {
                Some(Pause::Large) => None,
                pause => Some(pause.is_some()),
            })
        })
    }

    /// Returns the index of the large output, its descriptor, which then belongs to the caller, and its bytes so far.
    fn take_large<'py>(&self, py: Python<'py>) -> Option<(usize, i32, Bound<'py, PyBytes>)> {
        let mut state = self.state.lock(py);
        let index = state.large()?;
        let Slot::Read(pipe, bytes) = mem::take(&mut state.slots[index]) else { return None };
        drop(state);
        Some((index, OwnedFd::from(pipe).into_raw_fd(), PyBytes::new(py, &bytes)))
    }

    /// Returns both streams so far.
    fn so_far<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let state = self.state.lock(py);
        // Bytes are made without any code of Python.
        (PyBytes::new(py, state.so_far(0)), PyBytes::new(py, state.so_far(1)))
    }

    /// Returns true if something still held a stream open when reading ended.
    #[getter]
    fn held_open(&self, py: Python<'_>) -> bool {
        self.state.lock(py).held_open
    }

    /// Returns the number of input bytes that were not written.
    #[getter]
    fn unwritten(&self, py: Python<'_>) -> usize {
        let state = self.state.lock(py);
        state.input.len() - state.written
    }
}
