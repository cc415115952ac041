//! `--prefix` and `--timestamps`: a mark at the start of each line of output.

use jiff::Timestamp;

/// Adds marks to a stream, which arrives in pieces of any length.
#[derive(Debug)]
pub(super) struct LineMarks {
    prefix: String,
    has_time: bool,
    /// The next byte begins a line.
    is_at_start: bool,
}

impl LineMarks {
    pub(super) fn new(prefix: Option<&str>, has_time: bool) -> LineMarks {
        LineMarks { prefix: prefix.unwrap_or_default().to_owned(), has_time, is_at_start: true }
    }

    pub(super) fn mark(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.mark_at(bytes, Timestamp::now())
    }

    fn mark_at(&mut self, bytes: &[u8], now: Timestamp) -> Vec<u8> {
        // As RFC 3339 writes it, in UTC and with milliseconds.
        let mut mark = if self.has_time { format!("{now:.3} ") } else { String::new() };
        mark.push_str(&self.prefix);
        let mut marked = Vec::with_capacity(bytes.len() + 4 * mark.len());
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.is_at_start {
                marked.extend_from_slice(mark.as_bytes());
            }
            marked.extend_from_slice(line);
            self.is_at_start = line.ends_with(b"\n");
        }
        marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_one_mark_however_it_arrives() {
        let text = b"one\ntwo\n\nthree";
        for bytes in 1..=text.len() {
            let mut marks = LineMarks::new(Some("[x] "), false);
            let marked: Vec<u8> = text.chunks(bytes).flat_map(|chunk| marks.mark(chunk)).collect();
            assert_eq!(marked, b"[x] one\n[x] two\n[x] \n[x] three", "{bytes}");
        }
        assert!(LineMarks::new(Some("x"), true).mark(b"").is_empty());
    }

    #[test]
    fn the_time_comes_before_the_prefix() {
        let mut marks = LineMarks::new(Some("> "), true);
        for (millis, marked) in [
            (1_709_210_096_789, "2024-02-29T12:34:56.789Z > a\n"),
            (0, "1970-01-01T00:00:00.000Z > a\n"),
            (4_102_444_799_000, "2099-12-31T23:59:59.000Z > a\n"),
        ] {
            let at = Timestamp::from_millisecond(millis).unwrap();
            assert_eq!(marks.mark_at(b"a\n", at), marked.as_bytes());
        }
    }
}
