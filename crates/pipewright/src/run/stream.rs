//! One of the child's streams: read, copied to a tee, and in the end given up.

use std::io;
use std::mem;

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::base::wait::Slot;

use super::sink::{LimitCheck, Sink};

/// One of the child's streams.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// `None` during a read, which has it in its slot, and after the end.
    pub(super) pipe: Option<PipeReader>,
    pub(super) sink: Option<Sink>,
}

impl Stream {
    pub(super) fn new(stream: Option<(PipeReader, Sink)>) -> Stream {
        match stream {
            Some((pipe, sink)) => Stream { pipe: Some(pipe), sink: Some(sink) },
            None => Stream::default(),
        }
    }

    /// Returns the next read or write, or [`Slot::Off`] if there is no new one.
    pub(super) fn next(&mut self, paused: bool) -> io::Result<Slot<'static>> {
        let Some(sink) = &mut self.sink else { return Ok(Slot::Off) };
        if let Some(tee) = sink.pending_tee() {
            // The write comes before the next read, and uses the slot of the read.
            return Ok(tee.submit());
        }
        match self.pipe.take_if(|_| !paused) {
            Some(pipe) => sink.lend().map(|buffer| Slot::Read(pipe, buffer)),
            None => Ok(Slot::Off),
        }
    }

    /// Returns true if the tee has unwritten bytes.
    pub(super) fn has_pending_tee(&self) -> bool {
        self.sink.as_ref().is_some_and(Sink::has_pending_tee)
    }

    /// Closes this process's end if nobody wants the stream, as a direct reader of the child would have done. Returns true if
    /// it was a terminal's: the other handles of that side have to go too, and the terminal hangs up.
    pub(super) fn close_if_unwanted(&mut self) -> bool {
        let Some(sink) = &self.sink else { return false };
        let is_terminal = |pipe: &PipeReader| pipe.most_buffered_of_terminal().is_some();
        let is_terminal = self.pipe.as_ref().is_some_and(is_terminal);
        if !sink.is_unwanted(is_terminal) {
            return false;
        }
        self.pipe = None;
        is_terminal
    }

    /// Reads the bytes that are in the pipe now, and gives the stream up, with the unwritten bytes of its tee.
    ///
    /// `drain` takes over a pipe that others still hold.
    #[cold]
    pub(super) fn give_up(
        &mut self,
        slot: &mut Slot<'static>,
        drain: Option<fn(PipeReader)>,
    ) -> io::Result<Rest> {
        let nothing = Rest { at_end: true, exceeds_limit: false };
        let Stream { pipe, sink: Some(sink) } = self else { return Ok(nothing) };
        let pipe = match mem::take(slot) {
            Slot::Read(pipe, buffer) => {
                sink.give_back(buffer);
                Some(pipe)
            }
            _ => pipe.take(),
        };
        if let Some(tee) = sink.pending_tee() {
            tee.give_up();
        }
        let Some(pipe) = pipe else { return Ok(nothing) };
        let rest = take_rest(&pipe, sink)?;
        sink.note_end();
        if let Some(drain) = drain.filter(|_| !rest.at_end) {
            drain(pipe);
        }
        Ok(rest)
    }
}

/// The size from which a chunk of a terminal is not small: a quarter of what one read can return.
const LARGE_TERMINAL_READ_BYTES: usize = 1 << 10;

/// Returns true if the length of a read says nothing about the child: the read filled its buffer, or came from a terminal,
/// where it returns a few KiB at most.
pub(super) fn is_full_read(pipe: &PipeReader, buffer: &Vec<u8>, count: usize) -> bool {
    buffer.len() == buffer.capacity()
        || (pipe.most_buffered_of_terminal().is_some() && count >= LARGE_TERMINAL_READ_BYTES)
}

/// A chunk of a stream.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Vec<u8>,
    /// True if this is the last chunk of the stream.
    pub(crate) at_end: bool,
}

/// The result of reading the rest of a pipe.
pub(super) struct Rest {
    /// True if no process holds the stream open any more.
    pub(super) at_end: bool,
    /// True if the stream exceeds [`Limit::fail`](crate::Limit::fail).
    pub(super) exceeds_limit: bool,
}

/// Reads the bytes that are in the pipe now, but not those that a fast writer adds meanwhile.
fn take_rest(pipe: &PipeReader, sink: &mut Sink) -> io::Result<Rest> {
    let mut left = match pipe.most_buffered_of_terminal() {
        Some(most) => most,
        None => pipe.available()?,
    };
    let mut exceeds_limit = false;
    loop {
        let mut buffer = sink.lend_with_room()?;
        match pipe.try_read_spare(&mut buffer) {
            Ok(0) => {
                sink.give_back(buffer);
                return Ok(Rest { at_end: true, exceeds_limit });
            }
            Ok(count) => {
                exceeds_limit |= sink.accept(buffer, count) == LimitCheck::Exceeded;
                left = left.saturating_sub(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sink.give_back(buffer);
                return Ok(Rest { at_end: false, exceeds_limit });
            }
            Err(error) => return Err(error),
        }
        if left == 0 && pipe.available()? > 0 {
            return Ok(Rest { at_end: false, exceeds_limit });
        }
    }
}
