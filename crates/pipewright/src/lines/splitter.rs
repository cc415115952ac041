//! Lines out of chunks: pure, no system call.

/// A line without its end, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawLine {
    pub(crate) bytes: Vec<u8>,
    pub(crate) truncated: bool,
}

/// Finds the lines in a buffer that grows at its end.
///
/// A line ends with LF or CR LF; the last one may lack its end. Of a line longer than the maximum
/// its start is kept and the rest skipped, so that memory stays bounded whatever comes.
#[derive(Debug)]
pub(crate) struct Splitter {
    max_bytes: usize,
    /// Where the next line starts in the buffer.
    start: usize,
    /// Up to where there is no line end after `start`.
    searched: usize,
    /// The line at `start` is over its maximum: bytes up to its end are dropped.
    skipping: bool,
}

impl Splitter {
    /// `None` is no maximum.
    pub(crate) fn new(max_bytes: Option<usize>) -> Splitter {
        let max_bytes = max_bytes.unwrap_or(usize::MAX);
        Splitter { max_bytes, start: 0, searched: 0, skipping: false }
    }

    /// The next line of the buffer, if it is there as a whole.
    pub(crate) fn next(&mut self, buffer: &mut Vec<u8>) -> Option<RawLine> {
        match find_line_feed(&buffer[self.searched..]) {
            Some(at) => {
                let end = self.searched + at;
                let line = self.cut(&buffer[self.start..end], true);
                self.start = end + 1;
                self.searched = self.start;
                Some(line)
            }
            None => {
                self.forget_excess(buffer);
                self.searched = buffer.len();
                None
            }
        }
    }

    /// What is left when nothing more comes: a last line without its end.
    pub(crate) fn last(&mut self, buffer: &mut Vec<u8>) -> Option<RawLine> {
        if let Some(line) = self.next(buffer) {
            return Some(line);
        }
        let is_line = self.start < buffer.len() || self.skipping;
        let line = is_line.then(|| self.cut(&buffer[self.start..], false));
        buffer.clear();
        self.start = 0;
        self.searched = 0;
        line
    }

    /// Frees the room of the lines that have been taken. Cheap once all whole lines are.
    pub(crate) fn compact(&mut self, buffer: &mut Vec<u8>) {
        buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
    }

    fn cut(&mut self, line: &[u8], has_end: bool) -> RawLine {
        let line = match line.strip_suffix(b"\r") {
            // Where bytes have been skipped, what stands before the line feed now did not then.
            Some(line) if has_end && !self.skipping => line,
            _ => line,
        };
        let kept = &line[..line.len().min(self.max_bytes)];
        let truncated = std::mem::take(&mut self.skipping) || kept.len() < line.len();
        RawLine { bytes: kept.to_vec(), truncated }
    }

    /// Drops what a line without an end in sight has over the maximum. A CR just behind it stays:
    /// it may be half of the line's end.
    fn forget_excess(&mut self, buffer: &mut Vec<u8>) {
        let most = self.start.saturating_add(self.max_bytes);
        if buffer.len() <= most {
            return;
        }
        if self.skipping || buffer.len() - most > 1 || buffer[most] != b'\r' {
            self.skipping = true;
            buffer.truncate(most);
        }
    }
}

/// The first line feed. A word at a time: lines are short and buffers are not.
fn find_line_feed(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const LINE_FEEDS: u64 = LOW * b'\n' as u64;
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for (index, word) in words.enumerate() {
        // A byte of `other` is zero where the word has a line feed; the rest is the usual trick to
        // find a zero byte. Only the lowest hit is exact, and only that one is used.
        let word: [u8; 8] = word.try_into().unwrap_or_default();
        let other = u64::from_le_bytes(word) ^ LINE_FEEDS;
        let hits = other.wrapping_sub(LOW) & !other & HIGH;
        if hits != 0 {
            return Some(index * 8 + hits.trailing_zeros() as usize / 8);
        }
    }
    let searched = bytes.len() - rest.len();
    rest.iter().position(|byte| *byte == b'\n').map(|at| searched + at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Splits text that arrives in pieces of the given lengths, over and over.
    fn split(text: &[u8], pieces: &[usize], max: Option<usize>) -> (Vec<RawLine>, usize) {
        let mut splitter = Splitter::new(max);
        let (mut buffer, mut lines, mut most) = (Vec::new(), Vec::new(), 0);
        let mut rest = text;
        for piece in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*piece).clamp(1, rest.len()));
            rest = later;
            splitter.compact(&mut buffer);
            buffer.extend_from_slice(now);
            most = most.max(buffer.len());
            while let Some(line) = splitter.next(&mut buffer) {
                lines.push(line);
            }
        }
        while let Some(line) = splitter.last(&mut buffer) {
            lines.push(line);
        }
        (lines, most)
    }

    /// What std makes of the same text.
    fn by_std(text: &[u8], max: Option<usize>) -> Vec<RawLine> {
        let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let last_is_empty = lines.last().is_some_and(|last| last.is_empty());
        let has_end = lines.len() - 1;
        if last_is_empty {
            lines.pop();
        }
        let max = max.unwrap_or(usize::MAX);
        let cut = |(index, line): (usize, &&[u8])| {
            let line = match line.strip_suffix(b"\r") {
                Some(line) if index < has_end => line,
                _ => line,
            };
            let kept = &line[..line.len().min(max)];
            RawLine { bytes: kept.to_vec(), truncated: kept.len() < line.len() }
        };
        lines.iter().enumerate().map(cut).collect()
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_text_is_cut(
            text in "[a\r\n\u{e9}\u{1f600}]{0,200}",
            pieces in prop::collection::vec(1_usize..20, 1..10),
            max in prop::option::of(0_usize..12),
        ) {
            let (lines, _) = split(text.as_bytes(), &pieces, max);
            prop_assert_eq!(lines, by_std(text.as_bytes(), max));
        }

        #[test]
        fn the_line_feed_is_found_where_it_is(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let expected = bytes.iter().position(|byte| *byte == b'\n');
            prop_assert_eq!(find_line_feed(&bytes), expected);
        }
    }

    #[test]
    fn a_line_without_end_keeps_memory_bounded() {
        let text = vec![b'x'; 1 << 20];
        let (lines, most) = split(&text, &[1000], Some(50));
        assert_eq!(lines, [RawLine { bytes: vec![b'x'; 50], truncated: true }]);
        assert!(most <= 1051, "{most}");
    }

    #[test]
    fn a_carriage_return_just_past_the_maximum_is_no_excess() {
        for pieces in [&[5][..], &[6], &[7], &[1]] {
            let (lines, _) = split(b"12345\r\nx", pieces, Some(5));
            assert!(!lines[0].truncated && lines[0].bytes == b"12345", "{pieces:?}");
            let (lines, _) = split(b"12345\rx\n", pieces, Some(5));
            assert!(lines[0].truncated && lines[0].bytes == b"12345", "{pieces:?}");
        }
    }
}
