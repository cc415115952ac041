//! Texts of another process in errors: the kept part of one, and the lines of a worker's stderr that explain its death.

use std::fmt;

use pipewright_os::base::error::OneLine;

/// The most bytes of a text from another process that an error keeps.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// Returns the beginning of a text, at most [`MAX_TEXT_BYTES`]. A text may be as long as the longest message.
pub(crate) fn beginning(text: &[u8]) -> String {
    // Four more bytes: a character at the cut is whole, and is then cut off as a whole.
    let near = text.get(..MAX_TEXT_BYTES + 4).unwrap_or(text);
    let mut kept = String::from_utf8_lossy(near).into_owned();
    let mut end = kept.len().min(MAX_TEXT_BYTES);
    while !kept.is_char_boundary(end) {
        end -= 1;
    }
    kept.truncate(end);
    kept.shrink_to_fit();
    kept
}

/// The beginning of a text on one line, with the length of the whole text if that is longer.
#[derive(Debug)]
pub(crate) struct PeerText<'a>(pub(crate) &'a str, pub(crate) usize);

impl fmt::Display for PeerText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerText(beginning, bytes) = self;
        // A cut text has at least 1,024 characters, so this ends with "...".
        write!(f, "{}", OneLine(beginning))?;
        if *bytes > MAX_TEXT_BYTES { write!(f, " ({bytes} bytes)") } else { Ok(()) }
    }
}

/// Returns the most informative lines: the last one; or, if a panic of Rust was the last event, its location and its
/// message.
pub(crate) fn summary(text: &str) -> impl Iterator<Item = &str> {
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let informative: Vec<&str> = lines().filter(|line| !is_backtrace(line)).collect();
    let ends_in_backtrace = lines().next_back().is_some_and(is_backtrace);
    let panic = informative.iter().rposition(|line| is_panic(line));
    let panic = panic.filter(|at| ends_in_backtrace || at + 2 == informative.len());
    let last = informative.last().copied().or_else(|| lines().next_back());
    let (place, said) = match panic {
        Some(at) => (informative.get(at).copied(), informative.get(at + 1).copied()),
        None => (None, last),
    };
    place.map(|place| place.trim_end_matches(':')).into_iter().chain(said)
}

/// Returns true for the first line of a panic. The next line is its message.
fn is_panic(line: &str) -> bool {
    line.starts_with("thread '") && line.contains(" panicked at ")
}

/// Returns true for lines that Rust writes after a panic, hints and the backtrace, and Node after an uncaught exception: the frames
/// and its version.
fn is_backtrace(line: &str) -> bool {
    let frame = line.trim_start();
    let number = frame.split(':').next().unwrap_or_default();
    let is_frame = frame != line
        && (frame.starts_with("at ")
            || !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit()));
    is_frame
        || line.starts_with("note: ")
        || line == "stack backtrace:"
        || line.starts_with("Node.js v")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<&str> {
        summary(text).collect()
    }

    const PLACE: &str = "thread 'main' panicked at src/main.rs:2:5";

    #[test]
    fn panic_is_summarized_by_location_and_message() {
        for tail in [
            "",
            "\n  left: 1\n right: 2\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
            "\nstack backtrace:\n   0: __rustc::rust_begin_unwind\n             at /rustc/1/library/std/src/panicking.rs:697:5\n  \
             12: main\nnote: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.",
        ] {
            let words = format!("before\n\n{PLACE}:\nno disk{tail}");
            assert_eq!(said(&words), [PLACE, "no disk"], "{words}");
        }
    }

    #[test]
    fn other_text_is_summarized_by_its_last_line() {
        assert_eq!(said("first\nlast\n"), ["last"]);
        assert_eq!(
            said(&format!("{PLACE}:\ncaught\nnote: hint\nanother end\nno disk")),
            ["no disk"]
        );
        assert_eq!(said("no disk\nnote: look at the log"), ["no disk"]);
        // Better than no line.
        assert_eq!(said("note: look at the log"), ["note: look at the log"]);
        assert_eq!(said("  7: a list of its own\nend: 7"), ["end: 7"]);
        assert!(said("\n").is_empty());
        // An uncaught exception of Node.
        let crash = "file:///worker.mjs:2\nthrow new Error('no disk')\n      ^\n\nError: no disk\n    at file:///worker.mjs:2:9\n\nNode.js v20.20.2\n";
        assert_eq!(said(crash), ["Error: no disk"]);
        // Cut off before its message.
        assert_eq!(said(&format!("{PLACE}:")), [PLACE.to_owned() + ":"]);
    }
}
