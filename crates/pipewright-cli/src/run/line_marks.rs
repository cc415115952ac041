//! `--prefix` and `--timestamps`: a mark at the start of each line of output.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pipewright_os::base::utc::Utc;

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
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.mark_at(bytes, since_epoch)
    }

    fn mark_at(&mut self, bytes: &[u8], since_epoch: Duration) -> Vec<u8> {
        let mut mark = if self.has_time { utc(since_epoch) + " " } else { String::new() };
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

/// Returns the time as RFC 3339 writes it, in UTC and with milliseconds.
fn utc(since_epoch: Duration) -> String {
    let Utc { year, month, day, hour, minute, second, .. } = Utc::of(since_epoch.as_secs());
    let millis = since_epoch.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
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
        let at = Duration::from_millis(1_709_210_096_789);
        assert_eq!(marks.mark_at(b"a\n", at), b"2024-02-29T12:34:56.789Z > a\n");
        assert_eq!(utc(Duration::ZERO), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(Duration::from_secs(4_102_444_799)), "2099-12-31T23:59:59.000Z");
    }
}
