//! A tee: a copy of a child's stream to one of this process's own, to a handle or to a closure, without blocking on a
//! slow reader.
//!
//! Bytes that the target does not accept at once are kept, and the child's stream is not read until they are written.
//! So memory stays bounded, back-pressure slows a child that writes too fast, and a timeout, a cancel or a kill takes
//! effect in time. A writer thread could do the same, but could not be given up when the run ends: its last bytes would
//! come after everything else.

use std::any::Any;
use std::fmt;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use pipewright_os::base::handle::Handle;
use pipewright_os::base::pipe::PipeWriter;
use pipewright_os::base::stdio;
use pipewright_os::base::wait::Slot;

use crate::outcome::Source;
use crate::output::TeeFailed;

/// The target of a stream's copy. A trait object, so that only programs with tees contain the code.
pub(crate) trait Tee: fmt::Debug + Send {
    /// Writes bytes, or keeps them until the target accepts them.
    fn write(&mut self, bytes: &[u8]);

    /// Records the end of the stream.
    fn end(&mut self) {}

    /// Returns true if it also gets the bytes beyond [`Limit::fail`](crate::Limit::fail).
    fn takes_excess(&self) -> bool {
        false
    }

    /// Returns true if a write may take as long as the caller's code does. Such a tee takes the excess, too.
    fn may_wait(&self) -> bool {
        false
    }

    /// Returns true if there are unwritten bytes. The child's stream must not be read then.
    fn has_pending(&self) -> bool;

    /// Returns the write to wait for.
    fn submit(&mut self) -> Slot<'static>;

    /// Records the result of that write.
    fn note_written(&mut self, writer: PipeWriter, result: io::Result<usize>);

    /// Drops the unwritten bytes: the run no longer waits for the target.
    fn give_up(&mut self);

    /// Returns the error of a write, if one failed.
    fn failed(&self) -> Option<TeeFailed>;

    /// Takes the panic of a call of the caller's code. The run continues it when its state is consistent.
    fn take_panic(&mut self) -> Option<PanicPayload> {
        None
    }
}

/// Opens the tee to the same stream of this process.
pub(crate) type OpenTee = fn(Source) -> Box<dyn Tee>;

/// Opens the tee of a stream to a handle.
pub(crate) type OpenTeeTo = fn(Source, Handle) -> Box<dyn Tee>;

/// The target of a stream's copy, before the start.
pub(crate) enum TeeTarget {
    SameStream(OpenTee),
    Handle(OpenTeeTo, Handle),
    Closure(OpenTeeWith),
}

impl TeeTarget {
    pub(crate) fn open(self, stream: Source) -> Box<dyn Tee> {
        match self {
            TeeTarget::SameStream(open) => open(stream),
            TeeTarget::Handle(open, target) => open(stream, target),
            TeeTarget::Closure(open) => open(),
        }
    }
}

impl fmt::Debug for TeeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TeeTarget::SameStream(_) => f.write_str("SameStream"),
            TeeTarget::Handle(_, handle) => f.debug_tuple("Handle").field(handle).finish(),
            TeeTarget::Closure(_) => f.write_str("Closure"),
        }
    }
}

/// Opens the same stream of this process for a tee.
pub(super) fn open_tee(stream: Source) -> Box<dyn Tee> {
    let mut tee = TeeWriter::new(stream, false);
    match stdio::console_writer(stream == Source::Stderr) {
        // `None` if it is closed. As in std, that is not a failure.
        Ok(writer) => tee.writer = writer,
        Err(error) => tee.fail(&error),
    }
    Box::new(tee)
}

/// Opens a handle for the tee of a stream.
pub(super) fn open_tee_to(stream: Source, target: Handle) -> Box<dyn Tee> {
    open_tee_to_file(stream, Ok(target))
}

fn open_tee_to_file(stream: Source, target: io::Result<Handle>) -> Box<dyn Tee> {
    let mut tee = TeeWriter::new(stream, true);
    match target.and_then(stdio::writer_to) {
        Ok(writer) => tee.writer = Some(writer),
        Err(error) => tee.fail(&error),
    }
    Box::new(tee)
}

/// A tee to this process's stdout or stderr, or to a handle.
#[derive(Debug)]
struct TeeWriter {
    /// The child's stream.
    stream: Source,
    /// True if the target is a handle, and not this process's stream of the same name.
    to_handle: bool,
    /// `None` while a write in a slot has it, after a failure, and if the stream is closed.
    writer: Option<PipeWriter>,
    kept: Arc<Vec<u8>>,
    /// The number of kept bytes that have been written.
    written: usize,
    failed: Option<TeeFailed>,
}

impl TeeWriter {
    fn new(stream: Source, to_handle: bool) -> TeeWriter {
        let (kept, written) = (Arc::default(), 0);
        TeeWriter { stream, to_handle, writer: None, kept, written, failed: None }
    }

    fn fail(&mut self, error: &io::Error) {
        self.failed = Some(TeeFailed::new(self.stream, self.to_handle, error));
        self.writer = None;
        self.kept = Arc::default();
        self.written = 0;
    }

    /// Writes as much as possible without blocking, and returns the number of bytes.
    fn write_now(&self, writer: &PipeWriter, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            if !writer.has_room() {
                break;
            }
            if self.stream == Source::Stdout && !self.to_handle && written == 0 {
                // The program's own output, which std may have buffered, comes first. This can block, so only if
                // there is room. Errors are ignored: the write below reports them.
                let _ = io::stdout().flush();
            }
            match writer.try_write(rest) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }
}

impl Tee for TeeWriter {
    fn write(&mut self, bytes: &[u8]) {
        if self.has_pending() {
            Arc::make_mut(&mut self.kept).extend_from_slice(bytes);
            return;
        }
        let Some(writer) = &self.writer else { return };
        match self.write_now(writer, bytes) {
            Ok(count) => {
                self.kept = Arc::new(bytes.get(count..).unwrap_or_default().to_owned());
                self.written = 0;
            }
            Err(error) => self.fail(&error),
        }
    }

    fn has_pending(&self) -> bool {
        self.written < self.kept.len()
    }

    fn submit(&mut self) -> Slot<'static> {
        let write = |writer| Slot::Write(writer, Arc::clone(&self.kept), self.written);
        self.writer.take().map_or(Slot::Off, write)
    }

    fn note_written(&mut self, writer: PipeWriter, result: io::Result<usize>) {
        match result {
            Ok(count) => {
                self.written += count;
                self.writer = Some(writer);
            }
            Err(error) => self.fail(&error),
        }
    }

    fn give_up(&mut self) {
        if self.has_pending() {
            self.fail(&io::ErrorKind::TimedOut.into());
        }
    }

    fn failed(&self) -> Option<TeeFailed> {
        self.failed
    }
}

/// Opens the file of a tee, or returns another handle to it.
pub(crate) type OpenTeeFile =
    Arc<dyn Fn() -> io::Result<Handle> + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// Returns a function that opens tees to a stream of this process, and to a file. They share the closure.
pub(crate) fn open_tee_map<F: FnMut(&[u8]) -> Vec<u8> + Send + 'static>(
    to: Source,
    file: Option<OpenTeeFile>,
    map: F,
) -> OpenTeeWith {
    let map = Arc::new(Mutex::new(map));
    Arc::new(move || {
        let own = open_tee(to);
        let inner = match &file {
            None => own,
            Some(open) => {
                let file = open_tee_to_file(to, open());
                Box::new(BothTee { own, file, is_file_written: false })
            }
        };
        Box::new(MappedTee { map: Arc::clone(&map), inner })
    })
}

/// A tee to a stream of this process and to a file. Each has its own unwritten bytes, and one is written at a time.
#[derive(Debug)]
struct BothTee {
    own: Box<dyn Tee>,
    file: Box<dyn Tee>,
    /// The write in a slot is that of the file.
    is_file_written: bool,
}

impl Tee for BothTee {
    fn write(&mut self, bytes: &[u8]) {
        self.own.write(bytes);
        self.file.write(bytes);
    }

    fn has_pending(&self) -> bool {
        self.own.has_pending() || self.file.has_pending()
    }

    fn submit(&mut self) -> Slot<'static> {
        self.is_file_written = !self.own.has_pending();
        if self.is_file_written { self.file.submit() } else { self.own.submit() }
    }

    fn note_written(&mut self, writer: PipeWriter, result: io::Result<usize>) {
        match self.is_file_written {
            true => self.file.note_written(writer, result),
            false => self.own.note_written(writer, result),
        }
    }

    fn give_up(&mut self) {
        self.own.give_up();
        self.file.give_up();
    }

    fn failed(&self) -> Option<TeeFailed> {
        self.own.failed().or_else(|| self.file.failed())
    }
}

/// A tee that changes what it passes on.
struct MappedTee<F> {
    map: Arc<Mutex<F>>,
    inner: Box<dyn Tee>,
}

impl<F: FnMut(&[u8]) -> Vec<u8> + Send> Tee for MappedTee<F> {
    fn write(&mut self, bytes: &[u8]) {
        // The closure is the caller's: after a panic it is called as before.
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let mapped = map(bytes);
        drop(map);
        if !mapped.is_empty() {
            self.inner.write(&mapped);
        }
    }

    fn has_pending(&self) -> bool {
        self.inner.has_pending()
    }

    fn submit(&mut self) -> Slot<'static> {
        self.inner.submit()
    }

    fn note_written(&mut self, writer: PipeWriter, result: io::Result<usize>) {
        self.inner.note_written(writer, result);
    }

    fn give_up(&mut self) {
        self.inner.give_up();
    }

    fn failed(&self) -> Option<TeeFailed> {
        self.inner.failed()
    }
}

impl<F> fmt::Debug for MappedTee<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MappedTee").field(&self.inner).finish()
    }
}

/// Opens the tee to a closure, for each run. A trait object, so that only programs with such a tee contain the code.
/// The auto traits are those that `Command` and `Child` had without it.
pub(crate) type OpenTeeWith =
    Arc<dyn Fn() -> Box<dyn Tee> + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// The payload of a panic.
pub(crate) type PanicPayload = Box<dyn Any + Send>;

/// Returns a function that opens tees to this closure. They share it.
pub(crate) fn open_tee_with<F: FnMut(&[u8]) + Send + 'static>(closure: F) -> OpenTeeWith {
    open_closure_tee(closure, None)
}

/// Returns a function that opens tees which call this closure with whole lines. They share it.
pub(crate) fn open_tee_lines<F: FnMut(&[u8]) + Send + 'static>(closure: F) -> OpenTeeWith {
    open_closure_tee(closure, Some(Vec::new()))
}

fn open_closure_tee<F: FnMut(&[u8]) + Send + 'static>(
    closure: F,
    line: Option<Vec<u8>>,
) -> OpenTeeWith {
    let closure = Arc::new(Mutex::new(closure));
    Arc::new(move || {
        let line = line.clone();
        Box::new(ClosureTee { closure: Arc::clone(&closure), line, panic: None })
    })
}

/// The longest line that a tee hands over in one piece.
const MOST_LINE_BYTES: usize = 64 << 10;

/// A tee to a closure.
struct ClosureTee<F> {
    closure: Arc<Mutex<F>>,
    /// The start of a line whose end has not come. `None`: the closure gets each chunk.
    line: Option<Vec<u8>>,
    /// The payload of its panic, until the run's state allows it to continue. Unwinding at once would lose the chunk,
    /// and the finished reads of other runs that were waited for together.
    panic: Option<PanicPayload>,
}

impl<F: FnMut(&[u8]) + Send> ClosureTee<F> {
    fn call(&mut self, bytes: &[u8]) {
        // The closure is the caller's: after a panic it is called as before.
        let mut closure = self.closure.lock().unwrap_or_else(PoisonError::into_inner);
        let called = panic::catch_unwind(AssertUnwindSafe(|| closure(bytes)));
        if let Err(payload) = called {
            self.panic.get_or_insert(payload);
        }
    }

    /// Calls the closure with each line that is whole, or too long to wait for its end, and keeps the rest.
    fn write_lines(&mut self, mut line: Vec<u8>, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut rest = piece;
            loop {
                let (now, later) = rest.split_at(rest.len().min(MOST_LINE_BYTES - line.len()));
                if line.is_empty() && (now.ends_with(b"\n") || now.len() == MOST_LINE_BYTES) {
                    // Nothing to join: most lines are whole in their chunk.
                    self.call(now);
                } else {
                    line.extend_from_slice(now);
                    if line.ends_with(b"\n") || line.len() == MOST_LINE_BYTES {
                        self.call(&line);
                        line.clear();
                    }
                }
                if later.is_empty() {
                    break;
                }
                rest = later;
            }
        }
        self.line = Some(line);
    }
}

impl<F: FnMut(&[u8]) + Send> Tee for ClosureTee<F> {
    fn write(&mut self, bytes: &[u8]) {
        match self.line.take() {
            Some(line) => self.write_lines(line, bytes),
            None => self.call(bytes),
        }
    }

    fn end(&mut self) {
        if let Some(line) = self.line.as_mut().map(std::mem::take).filter(|line| !line.is_empty()) {
            self.call(&line);
        }
    }

    fn takes_excess(&self) -> bool {
        true
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn take_panic(&mut self) -> Option<PanicPayload> {
        self.panic.take()
    }

    fn has_pending(&self) -> bool {
        false
    }

    fn submit(&mut self) -> Slot<'static> {
        Slot::Off
    }

    fn note_written(&mut self, _: PipeWriter, _: io::Result<usize>) {}

    fn give_up(&mut self) {}

    fn failed(&self) -> Option<TeeFailed> {
        None
    }
}

impl<F> fmt::Debug for ClosureTee<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClosureTee")
    }
}
