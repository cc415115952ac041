//! A recording of a terminal in the formats of asciinema (asciicast v2 and v3).

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pipewright_os::process::pty::PtySize;

/// A recording of what a terminal shows, which `asciinema play` plays (feature `session`).
///
/// A recording is a line of JSON about the terminal, then a line for each event: its time in seconds, its kind and its
/// text. The format of [`new`](Self::new) is asciicast v2, which all versions of asciinema play;
/// [`with_format`](Self::with_format) chooses.
///
/// ```
/// # if cfg!(unix) {
/// use pipewright::{CastWriter, Command, PtySize, Stdio};
/// use std::sync::{Arc, Mutex};
/// let size = PtySize { rows: 24, cols: 80 };
/// let cast = Arc::new(Mutex::new(CastWriter::new(Vec::new(), size)?));
/// let recorder = Arc::clone(&cast);
/// let record = move |chunk: &[u8]| recorder.lock().unwrap().output(chunk).unwrap();
/// let done = Command::new("echo").arg("hi").pty(size).stdout(Stdio::tee_with(record)).output()?;
/// assert_eq!(done.stdout, b"hi\r\n");
/// let text = String::from_utf8(cast.lock().unwrap().get_ref().clone()).unwrap();
/// assert!(text.ends_with(", \"o\", \"hi\\r\\n\"]\n"), "{text}");
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "asciinema")]
#[derive(Debug)]
pub struct CastWriter<W> {
    to: W,
    format: CastFormat,
    start: Instant,
    /// The time of the last event after the start, in microseconds.
    last_micros: u128,
    /// The begin of a character whose rest has not come yet.
    rest: Vec<u8>,
}

/// A format of recordings (feature `session`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CastFormat {
    /// asciicast v2: the time of an event counts from the start.
    #[default]
    AsciicastV2,
    /// asciicast v3, of asciinema 3.0 and later: the time of an event counts from the event before, so that a part can
    /// be cut out, and the exit code of the command is recorded.
    AsciicastV3,
}

impl<W: Write> CastWriter<W> {
    /// Begins a recording in asciicast v2, and writes its first line. `TERM` and `SHELL` of this process go into it.
    ///
    /// # Errors
    /// The error of the write.
    pub fn new(to: W, size: PtySize) -> io::Result<CastWriter<W>> {
        CastWriter::with_format(to, size, CastFormat::AsciicastV2)
    }

    /// Begins a recording in that format, as [`new`](Self::new) does.
    ///
    /// # Errors
    /// The error of the write.
    pub fn with_format(mut to: W, size: PtySize, format: CastFormat) -> io::Result<CastWriter<W>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let variable = |name: &str| json_string(&std::env::var(name).unwrap_or_default());
        let (width, height) = (size.cols, size.rows);
        let (term, shell) = (variable("TERM"), variable("SHELL"));
        match format {
            CastFormat::AsciicastV2 => writeln!(
                to,
                "{{\"version\": 2, \"width\": {width}, \"height\": {height}, \"timestamp\": {now}, \
                 \"env\": {{\"TERM\": {term}, \"SHELL\": {shell}}}}}"
            ),
            CastFormat::AsciicastV3 => writeln!(
                to,
                "{{\"version\": 3, \"term\": {{\"cols\": {width}, \"rows\": {height}, \"type\": {term}}}, \
                 \"timestamp\": {now}, \"env\": {{\"SHELL\": {shell}}}}}"
            ),
        }?;
        Ok(CastWriter { to, format, start: Instant::now(), last_micros: 0, rest: Vec::new() })
    }

    /// Records output. A character that is cut at the end is written with the rest of it; other bytes that are not
    /// UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// The error of the write.
    pub fn output(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.rest.extend_from_slice(bytes);
        let end = self.rest.len() - incomplete_bytes(&self.rest);
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        match whole.is_empty() {
            true => Ok(()),
            false => self.event("o", &String::from_utf8_lossy(&whole)),
        }
    }

    /// Records what was typed.
    ///
    /// # Errors
    /// The error of the write.
    pub fn input(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.event("i", &String::from_utf8_lossy(bytes))
    }

    /// Records a new size.
    ///
    /// # Errors
    /// The error of the write.
    pub fn resize(&mut self, size: PtySize) -> io::Result<()> {
        self.event("r", &format!("{}x{}", size.cols, size.rows))
    }

    /// Records the end of the command: its exit code, or 128 and the number of the signal that killed it. asciicast v2
    /// has no such event. A character that was cut at the end becomes U+FFFD.
    ///
    /// # Errors
    /// The error of the write.
    pub fn exit(&mut self, code: i32) -> io::Result<()> {
        if !std::mem::take(&mut self.rest).is_empty() {
            self.event("o", "\u{fffd}")?;
        }
        match self.format {
            CastFormat::AsciicastV2 => Ok(()),
            CastFormat::AsciicastV3 => self.event("x", &code.to_string()),
        }
    }

    /// Writes everything to the target's own target.
    ///
    /// # Errors
    /// The error of the flush.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// Returns the target.
    pub fn get_ref(&self) -> &W {
        &self.to
    }

    fn event(&mut self, kind: &str, text: &str) -> io::Result<()> {
        let now = self.start.elapsed().as_micros();
        let from = match self.format {
            CastFormat::AsciicastV2 => 0,
            // From the time that was written, so that no error adds up.
            CastFormat::AsciicastV3 => self.last_micros,
        };
        let micros = now.saturating_sub(from);
        self.last_micros = now;
        let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
        writeln!(self.to, "[{seconds}.{rest:06}, \"{kind}\", {}]", json_string(text))
    }
}

/// Returns the number of bytes at the end that begin a character and do not end it.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => 0,
        Err(_) => (1..=bytes.len().min(3)).find(|count| is_cut(bytes, *count)).unwrap_or(0),
    }
}

/// Returns true if the last bytes, that many, are a character that is cut.
fn is_cut(bytes: &[u8], count: usize) -> bool {
    let tail = bytes.get(bytes.len() - count..).unwrap_or_default();
    let starts = tail.first().is_some_and(|first| *first >= 0xc0);
    // No error length: the end came too early.
    starts && std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none())
}

fn json_string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() && (control as u32) < 0x10000 => {
                // Ignored: writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04x}", control as u32);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<String> {
        let mut cast = CastWriter::new(Vec::new(), PtySize { rows: 5, cols: 9 }).unwrap();
        chunks.iter().for_each(|chunk| cast.output(chunk).unwrap());
        cast.resize(PtySize { rows: 6, cols: 7 }).unwrap();
        let text = String::from_utf8(cast.get_ref().clone()).unwrap();
        text.lines()
            .map(|line| line.split_once(", ").map_or(line, |(_, rest)| rest).to_owned())
            .collect()
    }

    #[test]
    fn a_recording_has_a_header_and_events() {
        let lines = events(&[b"a\x1b[1m\"\\\r\n\tb"]);
        assert!(
            lines[0].starts_with("\"width\": 9, \"height\": 5, \"timestamp\": "),
            "{}",
            lines[0]
        );
        assert_eq!(lines[1], r#""o", "a\u001b[1m\"\\\r\n\tb"]"#);
        assert_eq!(lines[2], r#""r", "7x6"]"#);
    }

    #[test]
    fn version_3_has_intervals_and_the_exit_code() {
        let size = PtySize { rows: 5, cols: 9 };
        let mut cast = CastWriter::with_format(Vec::new(), size, CastFormat::AsciicastV3).unwrap();
        for text in ["a", "b"] {
            let begin = Instant::now();
            while begin.elapsed().as_millis() < 20 {
                std::thread::yield_now();
            }
            cast.output(text.as_bytes()).unwrap();
        }
        cast.exit(3).unwrap();
        let total = cast.start.elapsed().as_secs_f64();
        let text = String::from_utf8(cast.get_ref().clone()).unwrap();
        let mut lines = text.lines();
        let header = lines.next().unwrap();
        let begin = "{\"version\": 3, \"term\": {\"cols\": 9, \"rows\": 5, \"type\": ";
        assert!(header.starts_with(begin), "{header}");
        let events: Vec<(f64, &str)> = lines
            .map(|line| {
                let (time, event) = line.trim_matches(['[', ']']).split_once(", ").unwrap();
                (time.parse().unwrap(), event)
            })
            .collect();
        let kinds: Vec<_> = events.iter().map(|(_, event)| *event).collect();
        assert_eq!(kinds, [r#""o", "a""#, r#""o", "b""#, r#""x", "3""#]);
        assert!(events[0].0 >= 0.02 && events[1].0 >= 0.02, "{events:?}");
        assert!(events.iter().map(|(time, _)| time).sum::<f64>() <= total, "{events:?}");
    }

    #[test]
    fn a_character_that_is_cut_is_written_whole() {
        let lines = events(&[b"x\xe2", b"\x82", b"\xac!", b"\xf0\x9f\x98", b"\x80"]);
        assert_eq!(
            lines[1..4],
            ["\"o\", \"x\"]", "\"o\", \"\u{20ac}!\"]", "\"o\", \"\u{1f600}\"]"]
        );
    }

    #[test]
    fn a_character_that_is_cut_at_the_end_is_not_lost() {
        for format in [CastFormat::AsciicastV2, CastFormat::AsciicastV3] {
            let size = PtySize { rows: 24, cols: 80 };
            let mut cast = CastWriter::with_format(Vec::new(), size, format).unwrap();
            cast.output(b"a\xe2\x82").unwrap();
            cast.exit(0).unwrap();
            let text = String::from_utf8(cast.get_ref().clone()).unwrap();
            assert!(
                text.contains("\"o\", \"a\"]\n") && text.contains("\"o\", \"\u{fffd}\"]\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_do_not_wait_for_ever() {
        let lines = events(&[b"\xff", b"a\x80"]);
        assert_eq!(lines[1..3], ["\"o\", \"\u{fffd}\"]", "\"o\", \"a\u{fffd}\"]"]);
    }
}
