//! A recording of a terminal in the format of asciinema (asciicast v2).

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pipewright_os::process::pty::PtySize;

/// A recording of what a terminal shows, which `asciinema play` plays (feature `session`).
///
/// The format is asciicast v2: a line of JSON about the terminal, then a line for each event, with its time in seconds.
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
    start: Instant,
    /// The begin of a character whose rest has not come yet.
    rest: Vec<u8>,
}

impl<W: Write> CastWriter<W> {
    /// Begins a recording, and writes its first line. `TERM` and `SHELL` of this process go into it.
    ///
    /// # Errors
    /// The error of the write.
    pub fn new(mut to: W, size: PtySize) -> io::Result<CastWriter<W>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let variable = |name: &str| json_string(&std::env::var(name).unwrap_or_default());
        let (width, height) = (size.cols, size.rows);
        let (term, shell) = (variable("TERM"), variable("SHELL"));
        writeln!(
            to,
            "{{\"version\": 2, \"width\": {width}, \"height\": {height}, \"timestamp\": {now}, \
             \"env\": {{\"TERM\": {term}, \"SHELL\": {shell}}}}}"
        )?;
        Ok(CastWriter { to, start: Instant::now(), rest: Vec::new() })
    }

    /// Records output. A character that is cut at the end is written with the rest of it; other bytes that are not UTF-8
    /// become U+FFFD.
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
        let seconds = self.start.elapsed().as_secs_f64();
        writeln!(self.to, "[{seconds:.6}, \"{kind}\", {}]", json_string(text))
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

/// Returns the text as a string of JSON.
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
    fn a_character_that_is_cut_is_written_whole() {
        let lines = events(&[b"x\xe2", b"\x82", b"\xac!", b"\xf0\x9f\x98", b"\x80"]);
        assert_eq!(
            lines[1..4],
            ["\"o\", \"x\"]", "\"o\", \"\u{20ac}!\"]", "\"o\", \"\u{1f600}\"]"]
        );
    }

    #[test]
    fn bytes_that_are_no_text_do_not_wait_for_ever() {
        let lines = events(&[b"\xff", b"a\x80"]);
        assert_eq!(lines[1..3], ["\"o\", \"\u{fffd}\"]", "\"o\", \"a\u{fffd}\"]"]);
    }
}
