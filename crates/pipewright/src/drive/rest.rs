//! What is left in a pipe that is given up.

use std::io;

use pipewright_os::base::pipe::PipeReader;

use super::Sink;
use super::sink::Verdict;

/// What [`take_rest`] found.
pub(super) struct Rest {
    /// Nobody holds the stream any more.
    pub(super) at_end: bool,
    /// More came than [`Limit::fail`](crate::Limit::fail) allows.
    pub(super) too_much: bool,
}

/// Reads what is in the pipe now, and not what a fast writer adds meanwhile.
pub(super) fn take_rest(pipe: &PipeReader, sink: &mut Sink) -> io::Result<Rest> {
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
