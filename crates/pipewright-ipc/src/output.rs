//! The stdout or stderr of a worker: keeps the end of it, and reports whole lines.

use std::collections::VecDeque;
use std::time::Instant;

use pipewright::PipeReader;
use pipewright_os::base::wait::{self, Slot};

/// The longest line that is reported as a whole.
const MAX_LINE_BYTES: usize = 16 << 10;

/// The read end of a worker's stdout or stderr.
#[derive(Debug)]
pub(crate) struct WorkerOutput {
    /// `None`: in a wait, or closed.
    pipe: Option<PipeReader>,
    chunk: Vec<u8>,
    /// The incomplete line.
    line: Vec<u8>,
    /// The end of the stream, at most `most` bytes.
    kept: VecDeque<u8>,
    most: usize,
}

impl WorkerOutput {
    pub(crate) fn new(pipe: Option<PipeReader>, most: usize) -> WorkerOutput {
        WorkerOutput { pipe, chunk: Vec::new(), line: Vec::new(), kept: VecDeque::new(), most }
    }

    /// Returns the slot of a wait.
    pub(crate) fn slot(&mut self) -> Slot<'static> {
        let chunk = &mut self.chunk;
        self.pipe.take().map_or(Slot::Off, |pipe| Slot::Read(pipe, std::mem::take(chunk)))
    }

    /// Evaluates a wait. Returns true if something has arrived.
    pub(crate) fn after_wait(&mut self, slot: Slot<'_>, on_line: &mut dyn FnMut(&str)) -> bool {
        let (pipe, mut chunk, count) = match slot {
            Slot::Read(pipe, chunk) => {
                (self.pipe, self.chunk) = (Some(pipe), chunk);
                return false;
            }
            Slot::ReadDone(pipe, chunk, Ok(count @ 1..)) => (pipe, chunk, count),
            // The end of the stream. An error counts as one: nothing depends on it.
            Slot::ReadDone(..) => {
                self.end_line(on_line);
                return false;
            }
            _ => return false,
        };
        let from = chunk.len() - count.min(chunk.len());
        self.append(chunk.get(from..).unwrap_or_default(), on_line);
        chunk.clear();
        (self.pipe, self.chunk) = (Some(pipe), chunk);
        true
    }

    fn append(&mut self, bytes: &[u8], on_line: &mut dyn FnMut(&str)) {
        self.kept.extend(bytes);
        let too_many = self.kept.len().saturating_sub(self.most);
        self.kept.drain(..too_many);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut rest = line;
            while !rest.is_empty() {
                let room = MAX_LINE_BYTES.saturating_sub(self.line.len()).max(1);
                let (piece, later) = rest.split_at(rest.len().min(room));
                self.line.extend_from_slice(piece);
                if self.line.len() >= MAX_LINE_BYTES || piece.ends_with(b"\n") {
                    self.end_line(on_line);
                }
                rest = later;
            }
        }
    }

    /// Reports the line so far.
    pub(crate) fn end_line(&mut self, on_line: &mut dyn FnMut(&str)) {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !self.line.is_empty() {
            on_line(&String::from_utf8_lossy(line));
        }
        self.line.clear();
    }

    /// Reads what was written so far, without waiting. Bounded: a descendant that holds the stream may write forever.
    pub(crate) fn read_available(&mut self) {
        const READS: usize = 64;
        for _ in 0..READS {
            let mut slots = [self.slot()];
            // Ignored: output that cannot be read is not reported.
            let _ = wait::any(&mut slots, Some(Instant::now()));
            let [slot] = slots.map(Slot::detach);
            if !self.after_wait(slot, &mut |_| {}) {
                break;
            }
        }
    }

    /// Returns the last whole lines.
    pub(crate) fn tail(&mut self) -> String {
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
        let (mut output, mut lines) = (WorkerOutput::new(None, most), Vec::new());
        let mut take = |line: &str| lines.push(line.to_owned());
        for chunk in chunks {
            output.append(chunk, &mut take);
        }
        output.end_line(&mut take);
        (lines, output.tail())
    }

    #[test]
    fn lines_are_whole_however_they_are_split() {
        let (lines, tail) = lines(&[b"a\nb", b"c\r\n\n", b"d"], 100);
        assert_eq!(lines, ["a", "bc", "", "d"]);
        assert_eq!(tail, "a\nbc\r\n\nd");
    }

    #[test]
    fn a_long_line_is_cut_at_the_same_places_however_it_arrives() {
        let (lines, _) = lines(&[&[b'x'; 16_000], &[b'x'; 16_384], &[b'x'; 16_000]], 30);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [16384, 16384, 15616]);
    }

    #[test]
    fn tail_is_bounded_and_starts_with_a_whole_line() {
        let (lines, tail) = lines(&[&b"0123456789\n".repeat(10), &[b'x'; 40_000]], 30);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>()[10..], [16384, 16384, 7232]);
        assert_eq!(tail, "x".repeat(30));
        let (_, tail) = super::tests::lines(&[&b"0123456789\n".repeat(10)], 30);
        assert_eq!(tail, "0123456789\n0123456789");
    }
}
