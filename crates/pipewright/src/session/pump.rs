//! Reads and writes at the terminal, one wait at a time.

use std::sync::Arc;
use std::time::Instant;
use std::{fmt, io};

use pipewright_os::base::pipe::{PipeReader, PipeWriter};
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::base::wake::WaitEvent;
use pipewright_os::process::pty::PtySize;

use super::is_over;
#[cfg(feature = "screen")]
use super::screen::ScreenState;
use super::search::{Match, Output, Search};

/// The room for one read, which returns 4 KiB at most on Linux.
const READ_BYTES: usize = 8 << 10;

/// More than a terminal holds on any system: Linux holds 12 KiB.
const MOST_HELD_BYTES: usize = 256 << 10;

/// The number of slots of a wait.
pub(super) const SLOTS: usize = 3;

/// The result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Output has come, a write has gone out, or the event has happened.
    Done,
    TimeIsUp,
    /// The output has ended, and there is nothing else to wait for.
    Ended,
}

/// The terminal of a session, and what was read from it.
pub(super) struct Pump {
    /// `None` after the end, and during a wait, which has it in its slot.
    reader: Option<PipeReader>,
    /// `None` during a wait that writes.
    writer: Option<PipeWriter>,
    /// Bytes that are still to be typed, and the number of those that have been.
    typing: Option<(Arc<Vec<u8>>, usize)>,
    output: Output,
    at_end: bool,
    #[cfg(feature = "screen")]
    screen: ScreenState,
}

impl Pump {
    pub(super) fn new(
        reader: PipeReader,
        writer: PipeWriter,
        #[cfg(feature = "screen")] size: PtySize,
    ) -> Pump {
        Pump {
            reader: Some(reader),
            writer: Some(writer),
            typing: None,
            output: Output::default(),
            at_end: false,
            #[cfg(feature = "screen")]
            screen: ScreenState::new(size),
        }
    }

    pub(super) fn unread(&self) -> &[u8] {
        self.output.unread()
    }

    /// Returns the number of bytes before the unread output that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.output.dropped()
    }

    /// Takes all unread output.
    pub(super) fn take_unread(&mut self) -> Vec<u8> {
        self.output.take_unread()
    }

    /// Returns the end of all output, as a person has seen it; the screen of an editor or a pager, which is drawn in
    /// any order.
    pub(super) fn tail(&self) -> String {
        #[cfg(feature = "screen")]
        if let Some(text) = self.screen.alternate_text() {
            return text;
        }
        self.output.tail()
    }

    pub(super) fn resize(&mut self, size: PtySize) {
        #[cfg(feature = "screen")]
        self.screen.resize(size);
        let _ = size;
    }

    /// Returns true if the program has asked for the other codes of the arrow keys.
    pub(super) fn has_application_cursor(&self) -> bool {
        #[cfg(feature = "screen")]
        return self.screen.has_application_cursor();
        #[cfg(not(feature = "screen"))]
        false
    }

    #[cfg(feature = "screen")]
    pub(super) fn screen(&self) -> &ScreenState {
        &self.screen
    }

    /// Returns the match of the first pattern that has come, and takes its output. `may_follow`: more output may be
    /// there already.
    pub(super) fn find(&mut self, search: &mut Search<'_>, may_follow: bool) -> Option<Match> {
        if let Some(found) = search.find(&self.output, self.at_end, may_follow) {
            return Some(self.output.take(found));
        }
        #[cfg(feature = "screen")]
        if let Some(index) = self.screen.find(search.patterns()) {
            return Some(self.output.take_all(index));
        }
        None
    }

    /// Waits once: for output, or until typed bytes are gone.
    pub(super) fn step(&mut self, until: Option<Instant>) -> io::Result<Progress> {
        self.step_with(Slot::Off, until)
    }

    /// Waits once as [`step`](Self::step) does, and for an event.
    pub(super) fn step_or_end(
        &mut self,
        event: &dyn WaitEvent,
        until: Option<Instant>,
    ) -> io::Result<Progress> {
        self.step_with(Slot::Event(event), until)
    }

    fn step_with(&mut self, event: Slot<'_>, until: Option<Instant>) -> io::Result<Progress> {
        let Some(mut slots) = self.submit(event) else { return Ok(Progress::Ended) };
        let waited = wait::any(&mut slots, until);
        self.complete(slots, waited)
    }

    /// Returns an error if the output has ended: the system takes what is typed then, and nobody ever reads it.
    pub(super) fn check_open(&self) -> io::Result<()> {
        if self.at_end { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Reads what the terminal holds, and not what others write meanwhile.
    pub(super) fn drain(&mut self) {
        for _ in 0..MOST_HELD_BYTES / READ_BYTES {
            if !matches!(self.step(Some(Instant::now())), Ok(Progress::Done)) {
                return;
            }
        }
    }

    /// Types the bytes, and reads output meanwhile.
    pub(super) fn send(&mut self, bytes: &[u8], until: Option<Instant>) -> io::Result<()> {
        self.check_open()?;
        self.begin_typing(bytes);
        while self.is_typing() {
            let stepped = self.step(until);
            self.typed(stepped, until)?;
        }
        Ok(())
    }

    /// Handles the result of a step that types. After an error nothing is left to be typed.
    pub(super) fn typed(
        &mut self,
        stepped: io::Result<Progress>,
        until: Option<Instant>,
    ) -> io::Result<()> {
        let failed = match stepped {
            // Output that never pauses does not put off the end.
            Ok(Progress::Done | Progress::TimeIsUp) if self.is_typing() && is_over(until) => {
                let words = "nobody reads what is typed, and the terminal holds no more";
                io::Error::new(io::ErrorKind::TimedOut, words)
            }
            Ok(Progress::Done | Progress::TimeIsUp) => match self.check_open() {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
            Ok(Progress::Ended) => io::ErrorKind::BrokenPipe.into(),
            Err(error) => error,
        };
        self.typing = None;
        Err(failed)
    }

    pub(super) fn begin_typing(&mut self, bytes: &[u8]) {
        self.typing = (!bytes.is_empty()).then(|| (Arc::new(bytes.to_vec()), 0));
    }

    /// Types these bytes after those that are still to be typed.
    pub(super) fn type_more(&mut self, bytes: &[u8]) {
        let rest = self.typing.take();
        let rest = rest.as_ref().and_then(|(bytes, from)| bytes.get(*from..)).unwrap_or_default();
        self.begin_typing(&[rest, bytes].concat());
    }

    /// Returns the number of bytes that are still to be typed.
    pub(super) fn typing_bytes(&self) -> usize {
        self.typing.as_ref().map_or(0, |(bytes, from)| bytes.len().saturating_sub(*from))
    }

    /// Returns true if the output has ended.
    pub(super) fn is_at_end(&self) -> bool {
        self.at_end
    }

    pub(super) fn is_typing(&self) -> bool {
        self.typing.is_some()
    }

    /// Forgets what is still to be typed.
    pub(super) fn stop_typing(&mut self) {
        self.typing = None;
    }

    /// Returns the slots of the next wait; `None` if there is nothing to wait for.
    pub(super) fn submit<'a>(&mut self, event: Slot<'a>) -> Option<[Slot<'a>; SLOTS]> {
        let [read, write] = self.submit_ends(true);
        let waits = [&read, &write, &event].iter().any(|slot| !matches!(slot, Slot::Off));
        waits.then_some([read, write, event])
    }

    /// Returns the slots that read, unless they should not, and write.
    pub(super) fn submit_ends<'a>(&mut self, reads: bool) -> [Slot<'a>; 2] {
        let read = |reader| Slot::Read(reader, Vec::with_capacity(READ_BYTES));
        let read = self.reader.take_if(|_| reads).map_or(Slot::Off, read);
        [read, write_slot(&self.typing, &mut self.writer)]
    }

    /// Takes back the slots, and handles the results.
    pub(super) fn complete(
        &mut self,
        slots: [Slot<'_>; SLOTS],
        waited: io::Result<usize>,
    ) -> io::Result<Progress> {
        let [read, write, event] = slots;
        let has_happened = matches!(event, Slot::EventDone);
        let mut failed = None;
        match read {
            Slot::Read(reader, _) => self.reader = Some(reader),
            Slot::ReadDone(_, _, Ok(0)) => self.at_end = true,
            Slot::ReadDone(reader, bytes, Ok(_)) => {
                self.reader = Some(reader);
                #[cfg(feature = "screen")]
                self.screen.add(&bytes);
                self.output.add(&bytes);
            }
            Slot::ReadDone(_, _, Err(error)) => failed = Some(error),
            _ => {}
        }
        match write {
            Slot::Write(writer, ..) => self.writer = Some(writer),
            Slot::WriteDone(writer, bytes, Ok(count)) => {
                self.writer = Some(writer);
                let from = self.typing.take().map_or(0, |(_, from)| from) + count;
                self.typing = (from < bytes.len()).then_some((bytes, from));
            }
            Slot::WriteDone(writer, _, Err(error)) => {
                self.writer = Some(writer);
                failed = failed.or(Some(error));
            }
            _ => {}
        }
        if let Some(error) = failed {
            return Err(error);
        }
        match waited? {
            0 if !has_happened => Ok(Progress::TimeIsUp),
            _ => Ok(Progress::Done),
        }
    }
}

/// Returns the slot that writes these bytes from there on, with the pipe. Nothing to write: the pipe stays.
pub(super) fn write_slot(
    bytes: &Option<(Arc<Vec<u8>>, usize)>,
    pipe: &mut Option<PipeWriter>,
) -> Slot<'static> {
    let Some((bytes, from)) = bytes else { return Slot::Off };
    pipe.take().map_or(Slot::Off, |pipe| Slot::Write(pipe, Arc::clone(bytes), *from))
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump").field("at_end", &self.at_end).finish_non_exhaustive()
    }
}
