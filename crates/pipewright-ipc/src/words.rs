//! What another process wrote, for a line that names it.

use std::fmt;

/// A longer text of another process is cut off in an error.
const MOST_CHARACTERS: usize = 500;

/// Text of another process on one bounded line, without commands for a terminal.
pub(crate) struct OneLine<'a>(pub(crate) &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.trim_end();
        let cut = text.char_indices().nth(MOST_CHARACTERS);
        let kept = cut.and_then(|(end, _)| text.get(..end));
        kept.unwrap_or(text).chars().try_for_each(|character| match character {
            '\t' => f.write_str(" "),
            it if it.is_control() => write!(f, "{}", it.escape_debug()),
            it => write!(f, "{it}"),
        })?;
        if kept.is_some() { f.write_str("...") } else { Ok(()) }
    }
}

/// The lines that say the most: the last one, or where a panic of Rust was the last thing, its place and what it
/// said.
pub(crate) fn gist(words: &str) -> impl Iterator<Item = &str> {
    let lines = || words.lines().filter(|line| !line.trim().is_empty());
    let telling: Vec<&str> = lines().filter(|line| !is_of_a_backtrace(line)).collect();
    let ends_in_backtrace = lines().next_back().is_some_and(is_of_a_backtrace);
    let panic = telling.iter().rposition(|line| is_panic(line));
    let panic = panic.filter(|at| ends_in_backtrace || at + 2 == telling.len());
    let last = telling.last().copied().or_else(|| lines().next_back());
    let (place, said) = match panic {
        Some(at) => (telling.get(at).copied(), telling.get(at + 1).copied()),
        None => (None, last),
    };
    place.map(|place| place.trim_end_matches(':')).into_iter().chain(said)
}

/// The first line of a panic; the next one is what it says.
fn is_panic(line: &str) -> bool {
    line.starts_with("thread '") && line.contains(" panicked at ")
}

/// What Rust writes below a panic: hints, and where the program was.
fn is_of_a_backtrace(line: &str) -> bool {
    let frame = line.trim_start();
    let number = frame.split(':').next().unwrap_or_default();
    let is_frame = frame != line
        && (frame.starts_with("at ")
            || !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit()));
    is_frame || line.starts_with("note: ") || line == "stack backtrace:"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str) -> Vec<&str> {
        gist(words).collect()
    }

    const PLACE: &str = "thread 'main' panicked at src/main.rs:2:5";

    #[test]
    fn a_panic_is_told_by_its_place_and_its_words() {
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
    fn else_the_last_line_is_told() {
        assert_eq!(said("first\nlast\n"), ["last"]);
        assert_eq!(
            said(&format!("{PLACE}:\ncaught\nnote: hint\nanother end\nno disk")),
            ["no disk"]
        );
        assert_eq!(said("no disk\nnote: look at the log"), ["no disk"]);
        // Better than nothing.
        assert_eq!(said("note: look at the log"), ["note: look at the log"]);
        assert_eq!(said("  7: a list of its own\nend: 7"), ["end: 7"]);
        assert!(said("\n").is_empty());
        // Cut off before its words.
        assert_eq!(said(&format!("{PLACE}:")), [PLACE.to_owned() + ":"]);
    }
}
