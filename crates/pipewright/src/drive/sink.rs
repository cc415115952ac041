//! What is kept of a stream.

use std::io::{self, Write};

use pipewright_os::memory;
use pipewright_os::mux::FIRST_READ_BYTES;
use pipewright_os::stdio;

use crate::command::{Limit, Past};
use crate::lines::{RawLine, Splitter};
use crate::output::Source;

/// A read into less room than this is not worth its system call.
const LEAST_ROOM_BYTES: usize = 4 << 10;
/// From here on pages are asked for by the 2 MiB: page faults are what a large capture waits for.
const HUGE_FROM_BYTES: usize = 4 << 20;
/// Where nothing is kept, what is read goes here and is overwritten.
const SCRATCH_BYTES: usize = 64 << 10;

/// Collects one stream.
#[derive(Debug)]
pub(crate) struct Sink {
    /// What is kept. While a read is under way it is in the read's buffer instead.
    kept: Vec<u8>,
    keep: Keep,
    echo: Option<Source>,
    total_bytes: u64,
    truncated: bool,
}

#[derive(Debug)]
enum Keep {
    All,
    Nothing,
    Limited(Limit),
    /// Until the caller takes it, line by line.
    Lines(Splitter),
}

/// What became of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    /// More came than [`Limit::fail`] allows.
    TooMuch,
}

impl Sink {
    pub(crate) fn new(limit: Option<Limit>) -> Sink {
        let keep = limit.map_or(Keep::All, Keep::Limited);
        Sink { kept: Vec::new(), keep, echo: None, total_bytes: 0, truncated: false }
    }

    /// A sink that only drains.
    pub(crate) fn discarding() -> Sink {
        Sink { keep: Keep::Nothing, ..Sink::new(None) }
    }

    /// A sink whose lines are taken one by one, each of at most that many bytes.
    pub(crate) fn splitting(max_line_bytes: Option<usize>) -> Sink {
        Sink { keep: Keep::Lines(Splitter::new(max_line_bytes)), ..Sink::new(None) }
    }

    /// From here on nothing is kept.
    pub(super) fn keep_nothing(&mut self) {
        self.keep = Keep::Nothing;
        self.kept.clear();
    }

    /// The next line; at the end of the stream also a last one without its end.
    pub(super) fn take_line(&mut self, at_end: bool) -> Option<RawLine> {
        match &mut self.keep {
            Keep::Lines(splitter) if at_end => splitter.last(&mut self.kept),
            Keep::Lines(splitter) => splitter.next(&mut self.kept),
            _ => None,
        }
    }

    /// Passes everything on to our own stream as it comes.
    pub(crate) fn echoing(self, to: Source) -> Sink {
        Sink { echo: Some(to), ..self }
    }

    /// Whether somebody watches the stream while it comes.
    pub(super) fn is_watched(&self) -> bool {
        self.echo.is_some() || matches!(self.keep, Keep::Lines(_))
    }

    /// A buffer with room to read into; what is kept is in it. At first it is empty and has none:
    /// a read gives it some when there is something to put in it.
    pub(super) fn lend(&mut self) -> io::Result<Vec<u8>> {
        if self.kept.capacity() == 0 {
            return Ok(Vec::new());
        }
        self.lend_with_room()
    }

    /// A buffer that has room; what is kept is in it.
    pub(super) fn lend_with_room(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = std::mem::take(&mut self.kept);
        if let Keep::Lines(splitter) = &mut self.keep {
            splitter.compact(&mut buffer);
        }
        if buffer.capacity() >= HUGE_FROM_BYTES {
            memory::prepare_next(&mut buffer);
        }
        let room = buffer.capacity() - buffer.len();
        if room >= LEAST_ROOM_BYTES {
            return Ok(buffer);
        }
        let more = match &self.keep {
            Keep::Nothing => SCRATCH_BYTES,
            Keep::All => buffer.capacity().max(FIRST_READ_BYTES),
            Keep::Lines(_) => SCRATCH_BYTES,
            // Twice the limit and a chunk is the most that is ever needed.
            Keep::Limited(limit) => {
                let most = limit.bytes.saturating_mul(2).saturating_add(SCRATCH_BYTES);
                let wanted = buffer.capacity().saturating_mul(2).max(FIRST_READ_BYTES).min(most);
                wanted.saturating_sub(buffer.len()).max(LEAST_ROOM_BYTES)
            }
        };
        // An allocation that fails must not end the program: the child is still to be stopped.
        buffer.try_reserve_exact(more).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if buffer.capacity() >= HUGE_FROM_BYTES {
            memory::expect_filling(&mut buffer);
        }
        Ok(buffer)
    }

    /// Takes the buffer back, with that many new bytes at its end.
    pub(super) fn accept(&mut self, mut buffer: Vec<u8>, new: usize) -> Verdict {
        self.total_bytes += new as u64;
        if let Some(to) = self.echo {
            self.echo(to, &buffer[buffer.len() - new..]);
        }
        let mut verdict = Verdict::Fine;
        match &self.keep {
            Keep::All | Keep::Lines(_) => {}
            Keep::Nothing => buffer.clear(),
            &Keep::Limited(Limit { bytes, past: Past::KeepTail }) => {
                if buffer.len() > bytes.saturating_mul(2) {
                    self.keep_tail(&mut buffer, bytes);
                }
            }
            &Keep::Limited(Limit { bytes, past }) => {
                if buffer.len() > bytes {
                    buffer.truncate(bytes);
                    self.truncated = true;
                    if past == Past::Fail {
                        verdict = Verdict::TooMuch;
                    }
                }
            }
        }
        self.kept = buffer;
        verdict
    }

    /// Takes back a buffer of a read that brought nothing.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        self.kept = buffer;
    }

    /// What was kept, and whether something was not.
    pub(super) fn finish(mut self) -> Finished {
        let mut kept = std::mem::take(&mut self.kept);
        if let Keep::Limited(Limit { bytes, past: Past::KeepTail }) = self.keep {
            self.keep_tail(&mut kept, bytes);
        }
        Finished { kept, total_bytes: self.total_bytes, truncated: self.truncated }
    }

    fn keep_tail(&mut self, buffer: &mut Vec<u8>, bytes: usize) {
        if buffer.len() > bytes {
            let excess = buffer.len() - bytes;
            buffer.drain(..excess);
            self.truncated = true;
        }
    }

    fn echo(&mut self, to: Source, bytes: &[u8]) {
        if to == Source::Stdout {
            // What the program itself has printed comes first. Ignored: the write below says so.
            let _ = io::stdout().flush();
        }
        if stdio::write_console(to == Source::Stderr, bytes).is_err() {
            // Whoever watched has gone; the child has not, and what it writes is still kept.
            self.echo = None;
        }
    }
}

/// What a sink collected.
#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) kept: Vec<u8>,
    pub(super) total_bytes: u64,
    pub(super) truncated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes bytes through a sink in chunks of at most the given length.
    fn pass(mut sink: Sink, bytes: &[u8], chunk: usize) -> (Finished, Verdict, usize) {
        let mut verdict = Verdict::Fine;
        let mut most_room = 0;
        for chunk in bytes.chunks(chunk) {
            let mut buffer = sink.lend().unwrap();
            let room = buffer.capacity() - buffer.len();
            assert!(room >= LEAST_ROOM_BYTES.min(chunk.len()) || buffer.capacity() == 0);
            most_room = most_room.max(buffer.capacity());
            buffer.extend_from_slice(chunk);
            if sink.accept(buffer, chunk.len()) == Verdict::TooMuch {
                verdict = Verdict::TooMuch;
            }
        }
        (sink.finish(), verdict, most_room)
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + i / 256) as u8).collect()
    }

    #[test]
    fn every_limit_keeps_what_it_says_whatever_the_chunks() {
        let all = bytes(50_000);
        for limit in [0, 1, 4096, 49_999, 50_000, 60_000] {
            for chunk in [1, 7, 1000, 8192] {
                let kept = limit.min(all.len());
                let (tail, verdict, _) =
                    pass(Sink::new(Some(Limit::keep_tail(limit))), &all, chunk);
                assert_eq!(tail.kept, all[all.len() - kept..]);
                assert_eq!((tail.truncated, verdict), (limit < all.len(), Verdict::Fine));
                let (head, _, _) = pass(Sink::new(Some(Limit::keep_head(limit))), &all, chunk);
                assert_eq!(head.kept, all[..kept]);
                assert_eq!(head.total_bytes, all.len() as u64);
                let (_, verdict, _) = pass(Sink::new(Some(Limit::fail(limit))), &all, chunk);
                assert_eq!(verdict == Verdict::TooMuch, limit < all.len());
            }
        }
    }

    #[test]
    fn memory_stays_within_twice_the_limit_and_a_chunk() {
        let all = bytes(4 << 20);
        for limit in [Limit::keep_tail(100_000), Limit::keep_head(100_000)] {
            let (_, _, room) = pass(Sink::new(Some(limit)), &all, LEAST_ROOM_BYTES);
            assert!(room <= 2 * 100_000 + SCRATCH_BYTES, "{room}");
        }
        let (_, _, room) = pass(Sink::discarding(), &all, LEAST_ROOM_BYTES);
        assert!(room <= SCRATCH_BYTES, "{room}");
    }

    #[test]
    fn an_absurd_limit_does_not_overflow() {
        for limit in [Limit::keep_tail(usize::MAX), Limit::keep_head(usize::MAX)] {
            let (all, _, _) = pass(Sink::new(Some(limit)), &bytes(100), 9);
            assert_eq!(all.kept, bytes(100));
        }
    }
}
