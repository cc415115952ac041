//! The last lines of an attempt's output, for reports.

use pipewright::Source;

/// The most bytes of the tail.
pub(super) const TAIL_BYTES: usize = 2 << 10;
/// The bytes that are kept for it: line ends do not count, and the byte before the tail tells if a line begins there.
const KEPT_BYTES: usize = TAIL_BYTES + 64;

/// Keeps the last bytes of stderr, and those of stdout while stderr is empty.
#[derive(Debug, Default)]
pub(super) struct Tail {
    stream: Option<Source>,
    last: Vec<u8>,
    /// True if bytes before `last` are gone.
    is_cut: bool,
}

impl Tail {
    pub(super) fn push(&mut self, stream: Source, bytes: &[u8]) {
        if self.stream == Some(Source::Stderr) && stream == Source::Stdout {
            return;
        }
        if self.stream.replace(stream) != Some(stream) {
            self.last.clear();
            self.is_cut = false;
        }
        let kept = bytes.get(bytes.len().saturating_sub(KEPT_BYTES)..).unwrap_or_default();
        if kept.len() < bytes.len() {
            self.last.clear();
            self.is_cut = true;
        }
        // Moving the bytes for each small piece would be slow, so half of the limit more is let in.
        if self.last.len() + kept.len() > KEPT_BYTES + TAIL_BYTES / 2 {
            let excess = (self.last.len() + kept.len()).saturating_sub(KEPT_BYTES);
            self.last.drain(..excess.min(self.last.len()));
            self.is_cut = true;
        }
        self.last.extend_from_slice(kept);
    }

    /// Returns the last lines. If not all of them fit, the first one is whole, except if it is the only one.
    pub(super) fn into_text(self) -> String {
        let mut last = &*self.last;
        let mut is_cut = self.is_cut;
        while let Some((b'\n' | b'\r', rest)) = last.split_last().map(|(end, rest)| (*end, rest)) {
            last = rest;
        }
        if last.len() > TAIL_BYTES {
            last = last.get(last.len() - TAIL_BYTES - 1..).unwrap_or_default();
            is_cut = true;
        }
        if is_cut {
            let begins = last.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            last = last.get(begins.unwrap_or(0)..).unwrap_or_default();
        }
        let text = String::from_utf8_lossy(last);
        // Replacement characters are longer than the bytes that they replace.
        let from = text.len().saturating_sub(TAIL_BYTES);
        let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.get(from..).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(pieces: &[(Source, &[u8])]) -> String {
        let mut tail = Tail::default();
        pieces.iter().for_each(|(stream, bytes)| tail.push(*stream, bytes));
        tail.into_text()
    }

    #[test]
    fn stderr_is_preferred_to_stdout() {
        use Source::{Stderr, Stdout};
        assert_eq!(tail(&[]), "");
        assert_eq!(tail(&[(Stdout, b"out\n")]), "out");
        assert_eq!(tail(&[(Stdout, b"out\n"), (Stderr, b"err\r\n"), (Stdout, b"x")]), "err");
    }

    #[test]
    fn the_tail_is_the_same_for_any_chunk_size_and_begins_with_a_line() {
        let all: Vec<u8> = (0..2000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let whole = tail(&[(Source::Stdout, &all)]);
        assert!(whole.starts_with("line ") && whole.ends_with("line 1999"), "{whole}");
        assert!(whole.len() <= TAIL_BYTES && whole.len() > TAIL_BYTES - 20);
        for size in [1, 7, 100, 2047, 2048, 2049, 5000] {
            let pieces: Vec<_> = all.chunks(size).map(|piece| (Source::Stdout, piece)).collect();
            assert_eq!(tail(&pieces), whole, "{size}");
        }
    }

    #[test]
    fn a_line_that_begins_at_the_limit_is_whole() {
        let mut all = b"x".repeat(100);
        all.push(b'\n');
        all.extend(b"y".repeat(TAIL_BYTES));
        assert_eq!(tail(&[(Source::Stdout, &all)]), "y".repeat(TAIL_BYTES));
    }

    #[test]
    fn a_long_line_is_cut_and_bytes_that_are_no_text_are_replaced() {
        assert_eq!(tail(&[(Source::Stderr, &b"x".repeat(9999))]).len(), TAIL_BYTES);
        let text = tail(&[(Source::Stderr, &[0xff; 9999])]);
        assert!(text.len() <= TAIL_BYTES && text.chars().all(|one| one == '\u{fffd}'));
        assert!(text.len() > TAIL_BYTES - 3);
    }
}
