//! What a worker writes to its stdout or stderr: the end of it is kept, and whole lines are handed on.

use std::collections::VecDeque;
use std::time::Instant;

use pipewright::PipeReader;
use pipewright_os::base::wait::{self, Slot};

/// A longer line is handed on in pieces.
const MOST_LINE_BYTES: usize = 16 << 10;

/// Our end of one of a worker's output streams.
#[derive(Debug)]
pub(crate) struct Output {
    /// `None`: lent to a wait, or at its end.
    pipe: Option<PipeReader>,
    chunk: Vec<u8>,
    /// The line that has not ended.
    line: Vec<u8>,
    /// The end of everything.
    kept: VecDeque<u8>,
    most: usize,
}

impl Output {
    pub(crate) fn new(pipe: Option<PipeReader>, most: usize) -> Output {
        Output { pipe, chunk: Vec::new(), line: Vec::new(), kept: VecDeque::new(), most }
    }

    /// What a wait is to do about it.
    pub(crate) fn submit(&mut self) -> Slot<'static> {
        let chunk = &mut self.chunk;
        self.pipe.take().map_or(Slot::Off, |pipe| Slot::Read(pipe, std::mem::take(chunk)))
    }

    /// Takes back what a wait has done. Whether something has come.
    pub(crate) fn take_back(&mut self, slot: Slot<'_>, on_line: &mut dyn FnMut(&str)) -> bool {
        let (pipe, mut chunk, count) = match slot {
            Slot::Read(pipe, chunk) => {
                (self.pipe, self.chunk) = (Some(pipe), chunk);
                return false;
            }
            Slot::ReadDone(pipe, chunk, Ok(count @ 1..)) => (pipe, chunk, count),
            // The end, or an error, which is another one: nothing depends on it.
            Slot::ReadDone(..) => {
                self.end(on_line);
                return false;
            }
            _ => return false,
        };
        let from = chunk.len() - count.min(chunk.len());
        self.note(chunk.get(from..).unwrap_or_default(), on_line);
        chunk.clear();
        (self.pipe, self.chunk) = (Some(pipe), chunk);
        true
    }

    fn note(&mut self, bytes: &[u8], on_line: &mut dyn FnMut(&str)) {
        self.kept.extend(bytes);
        let too_many = self.kept.len().saturating_sub(self.most);
        self.kept.drain(..too_many);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            for piece in piece.chunks(MOST_LINE_BYTES) {
                self.line.extend_from_slice(piece);
                if self.line.len() >= MOST_LINE_BYTES || piece.ends_with(b"\n") {
                    self.end(on_line);
                }
            }
        }
    }

    /// Hands on the line that has begun.
    pub(crate) fn end(&mut self, on_line: &mut dyn FnMut(&str)) {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !self.line.is_empty() {
            on_line(&String::from_utf8_lossy(line));
        }
        self.line.clear();
    }

    /// Takes in what has been written so far, without waiting. A descendant that holds the stream may write for ever,
    /// so there is a bound.
    pub(crate) fn take_in(&mut self) {
        const READS: usize = 64;
        for _ in 0..READS {
            let mut slots = [self.submit()];
            // Ignored: what cannot be read is not told.
            let _ = wait::any(&mut slots, Some(Instant::now()));
            let [slot] = slots.map(Slot::detach);
            if !self.take_back(slot, &mut |_| {}) {
                break;
            }
        }
    }

    /// The last lines, as many whole ones as are kept.
    pub(crate) fn last_words(&mut self) -> String {
        let is_cut = self.kept.len() >= self.most;
        let kept = self.kept.make_contiguous();
        let first_end = kept.iter().position(|byte| *byte == b'\n');
        let from = if is_cut { first_end.map_or(0, |end| end + 1) } else { 0 };
        let whole = kept.get(from..).filter(|rest| !rest.is_empty()).unwrap_or(kept);
        String::from_utf8_lossy(whole).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]], most: usize) -> (Vec<String>, String) {
        let (mut output, mut lines) = (Output::new(None, most), Vec::new());
        let mut take = |line: &str| lines.push(line.to_owned());
        for chunk in chunks {
            output.note(chunk, &mut take);
        }
        output.end(&mut take);
        (lines, output.last_words())
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        let (lines, words) = lines(&[b"a\nb", b"c\r\n\n", b"d"], 100);
        assert_eq!(lines, ["a", "bc", "", "d"]);
        assert_eq!(words, "a\nbc\r\n\nd");
    }

    #[test]
    fn what_is_kept_is_bounded_and_begins_with_a_line() {
        let (lines, words) = lines(&[&b"0123456789\n".repeat(10), &[b'x'; 40_000]], 30);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>()[10..], [16384, 16384, 7232]);
        assert_eq!(words, "x".repeat(30));
        let (_, words) = super::tests::lines(&[&b"0123456789\n".repeat(10)], 30);
        assert_eq!(words, "0123456789\n0123456789");
    }
}
