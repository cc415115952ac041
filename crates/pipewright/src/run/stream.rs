//! One of the child's streams: read from, or passed on, and in the end given up.

use std::io;
use std::mem;

use pipewright_os::base::pipe::PipeReader;
use pipewright_os::base::wait::Slot;

use super::sink::{Sink, Verdict};

/// One of the child's streams.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Here while it is not being read from; then it is in its slot.
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

    /// What is to be waited for now; [`Slot::Off`]: nothing, or nothing new.
    pub(super) fn next(&mut self, paused: bool) -> io::Result<Slot<'static>> {
        let Some(sink) = &mut self.sink else { return Ok(Slot::Off) };
        if let Some(tee) = sink.behind() {
            // Before more is read. The slot of the read is free meanwhile.
            return Ok(tee.submit());
        }
        match self.pipe.take_if(|_| !paused) {
            Some(pipe) => sink.lend().map(|buffer| Slot::Read(pipe, buffer)),
            None => Ok(Slot::Off),
        }
    }

    /// Whether our own stream has yet to take what came.
    pub(super) fn is_behind(&self) -> bool {
        self.sink.as_ref().is_some_and(Sink::is_behind)
    }

    /// Closes our end where nobody wants what comes, as a reader of the child's own would have.
    pub(super) fn close_if_in_vain(&mut self) {
        if self.sink.as_ref().is_some_and(Sink::is_in_vain) {
            self.pipe = None;
        }
    }

    /// Takes what is in the pipe at this moment, and gives the stream up; also what has not been
    /// passed on by now.
    ///
    /// `drain` reads on what others write to it.
    #[cold]
    pub(super) fn give_up(
        &mut self,
        slot: &mut Slot<'static>,
        drain: Option<fn(PipeReader)>,
    ) -> io::Result<Rest> {
        let nothing = Rest { at_end: true, too_much: false };
        let Stream { pipe, sink: Some(sink) } = self else { return Ok(nothing) };
        let pipe = match mem::take(slot) {
            Slot::Read(pipe, buffer) => {
                sink.give_back(buffer);
                Some(pipe)
            }
            _ => pipe.take(),
        };
        if let Some(tee) = sink.behind() {
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

/// A chunk of a stream.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Vec<u8>,
    /// Nothing more comes of this stream.
    pub(crate) at_end: bool,
}

/// The result of reading what is left in a pipe.
pub(super) struct Rest {
    /// Nobody holds the stream any more.
    pub(super) at_end: bool,
    /// More came than [`Limit::fail`](crate::Limit::fail) allows.
    pub(super) too_much: bool,
}

/// Reads what is in the pipe now, and not what a fast writer adds meanwhile.
fn take_rest(pipe: &PipeReader, sink: &mut Sink) -> io::Result<Rest> {
    let mut left = pipe.available()?;
    let mut too_much = false;
    loop {
        let mut buffer = sink.lend_with_room()?;
        match pipe.try_read_spare(&mut buffer) {
            Ok(0) => {
                sink.give_back(buffer);
                return Ok(Rest { at_end: true, too_much });
            }
            Ok(count) => {
                too_much |= sink.accept(buffer, count) == Verdict::TooMuch;
                left = left.saturating_sub(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sink.give_back(buffer);
                return Ok(Rest { at_end: false, too_much });
            }
            Err(error) => return Err(error),
        }
        if left == 0 && pipe.available()? > 0 {
            return Ok(Rest { at_end: false, too_much });
        }
    }
}
