//! Passes a child's stream on to our own, without ever waiting for whoever reads ours.
//!
//! What our stream does not take at once is kept, and until it is taken the child's stream is not
//! read: so memory stays bounded, a child that writes faster than we are read waits, and a timeout,
//! a cancel or a kill comes in time. A thread that writes would do the same, and could not be given
//! up when the run ends: its last bytes would come after everything else.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use pipewright_os::base::handle::Handle;
use pipewright_os::base::pipe::PipeWriter;
use pipewright_os::base::stdio;
use pipewright_os::base::wait::Slot;

use crate::outcome::Source;
use crate::output::TeeFailed;

/// Where a stream is passed on to. Behind a pointer that only a tee makes, so that a program without
/// one does not carry it.
pub(crate) trait Tee: fmt::Debug + Send {
    /// Passes bytes on, or keeps them until they can be.
    fn pass(&mut self, bytes: &[u8]);

    /// Whether something is kept. The child's stream is not to be read meanwhile.
    fn is_behind(&self) -> bool;

    /// The write that is to be waited for.
    fn submit(&mut self) -> Slot<'static>;

    /// What became of that write.
    fn note(&mut self, writer: PipeWriter, result: io::Result<usize>);

    /// Forgets what is kept: there is no more time for it.
    fn give_up(&mut self);

    fn failed(&self) -> Option<TeeFailed>;
}

/// Makes the tee to that stream of ours.
pub(crate) type OpenTee = fn(Source) -> Box<dyn Tee>;

/// Makes the tee of that stream to something else.
pub(crate) type OpenTeeTo = fn(Source, Handle) -> Box<dyn Tee>;

/// What a stream is passed on to.
#[derive(Debug)]
pub(crate) enum TeeTarget {
    Ours(OpenTee),
    Other(OpenTeeTo, Handle),
}

impl TeeTarget {
    pub(crate) fn open(self, stream: Source) -> Box<dyn Tee> {
        match self {
            TeeTarget::Ours(open) => open(stream),
            TeeTarget::Other(open, target) => open(stream, target),
        }
    }
}

/// Opens our stream for a tee.
pub(super) fn open_tee(stream: Source) -> Box<dyn Tee> {
    let mut console = Console::new(stream, stream == Source::Stdout);
    match stdio::console_writer(stream == Source::Stderr) {
        // Closed: there is nobody to pass anything on to, which is no failure, as in std.
        Ok(writer) => console.writer = writer,
        Err(error) => console.fail(&error),
    }
    Box::new(console)
}

/// Opens something else for the tee of that stream.
pub(super) fn open_tee_to(stream: Source, target: Handle) -> Box<dyn Tee> {
    let mut console = Console::new(stream, false);
    match stdio::writer_to(target) {
        Ok(writer) => console.writer = Some(writer),
        Err(error) => console.fail(&error),
    }
    Box::new(console)
}

/// Our stdout or stderr, or what stands in its place.
#[derive(Debug)]
struct Console {
    /// The stream that is passed on.
    stream: Source,
    /// It goes to our stdout, of which std may have something in its buffer.
    is_stdout: bool,
    /// Here while nothing is kept; then it is in a slot.
    writer: Option<PipeWriter>,
    kept: Arc<Vec<u8>>,
    /// How much of what is kept has been written.
    written: usize,
    failed: Option<TeeFailed>,
}

impl Console {
    fn new(stream: Source, is_stdout: bool) -> Console {
        let (kept, written) = (Arc::default(), 0);
        Console { stream, is_stdout, writer: None, kept, written, failed: None }
    }

    fn fail(&mut self, error: &io::Error) {
        self.failed = Some(TeeFailed::new(self.stream, error));
        self.writer = None;
        self.kept = Arc::default();
        self.written = 0;
    }

    /// Writes what goes at once. Says how much that was.
    fn write_now(&self, writer: &PipeWriter, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            if !writer.has_room() {
                break;
            }
            if self.is_stdout && written == 0 {
                // What the program itself has printed comes first. Only where there is room, as
                // this write can wait. Ignored: the write below says so.
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

impl Tee for Console {
    fn pass(&mut self, bytes: &[u8]) {
        if self.is_behind() {
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

    fn is_behind(&self) -> bool {
        self.written < self.kept.len()
    }

    fn submit(&mut self) -> Slot<'static> {
        let write = |writer| Slot::Write(writer, Arc::clone(&self.kept), self.written);
        self.writer.take().map_or(Slot::Off, write)
    }

    fn note(&mut self, writer: PipeWriter, result: io::Result<usize>) {
        match result {
            Ok(count) => {
                self.written += count;
                self.writer = Some(writer);
            }
            Err(error) => self.fail(&error),
        }
    }

    fn give_up(&mut self) {
        if self.is_behind() {
            self.fail(&io::ErrorKind::TimedOut.into());
        }
    }

    fn failed(&self) -> Option<TeeFailed> {
        self.failed
    }
}
