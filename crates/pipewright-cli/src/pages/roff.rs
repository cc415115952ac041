//! The language of manual pages, as man(7) has it, clean in `mandoc -Tlint`.

use std::fmt::Write as _;

/// The longest line that style checks let pass.
const LINE_BYTES: usize = 79;

/// A manual page that is being written.
#[derive(Debug, Default)]
pub(super) struct Roff(String);

impl Roff {
    /// Starts a page of section 1. The date stays as it is: no character of it is escaped.
    pub(super) fn title(&mut self, name: &str, date: &str, source: &str) {
        let name = escaped(&name.to_uppercase());
        let _ = writeln!(self.0, ".TH {name} 1 {date} \"{source}\" \"User Commands\"");
    }

    /// Adds a macro with arguments, which are quoted as needed.
    pub(super) fn control(&mut self, name: &str, args: &[&str]) {
        let _ = write!(self.0, ".{name}");
        for arg in args {
            let quote = if arg.is_empty() || arg.contains(' ') { "\"" } else { "" };
            let _ = write!(self.0, " {quote}{}{quote}", escaped(arg));
        }
        self.0.push('\n');
    }

    /// Adds text that is filled. Words may hold the marks of [`bold`] and [`italic`].
    pub(super) fn text(&mut self, text: &str) {
        let mut used = 0;
        for word in text.split_whitespace() {
            let word = escaped(word);
            if used > 0 && used + 1 + word.len() > LINE_BYTES {
                self.0.push('\n');
                used = 0;
            }
            if used > 0 {
                self.0.push(' ');
                used += 1;
            } else if word.starts_with(['.', '\'']) {
                // Else it would be taken for a macro.
                self.0.push_str("\\&");
                used += 2;
            }
            self.0.push_str(&word);
            used += word.len();
        }
        self.0.push('\n');
    }

    /// Adds lines that stay as they are.
    pub(super) fn example(&mut self, lines: &[&str]) {
        self.control("EX", &[]);
        for line in lines {
            let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            let _ = writeln!(self.0, "{guard}{}", escaped(line));
        }
        self.control("EE", &[]);
    }

    /// Adds an entry of a list: a term, and the text about it.
    pub(super) fn entry(&mut self, term: &str, text: &str) {
        self.control("TP", &[]);
        self.text(term);
        self.text(text);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

const BOLD: char = '\u{e000}';
const ITALIC: char = '\u{e001}';
const PLAIN: char = '\u{e002}';

/// Marks text as bold. Each word is marked by itself, so that a line may end between them.
pub(super) fn bold(text: &str) -> String {
    marked(BOLD, text)
}

/// Marks text as italic.
pub(super) fn italic(text: &str) -> String {
    marked(ITALIC, text)
}

fn marked(mark: char, text: &str) -> String {
    let words = text.split(' ').map(|word| format!("{mark}{word}{PLAIN}"));
    words.collect::<Vec<_>>().join(" ")
}

/// Escapes what means something to roff, or is shown as another character.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            '"' => escaped.push_str("\\(dq"),
            BOLD => escaped.push_str("\\fB"),
            ITALIC => escaped.push_str("\\fI"),
            PLAIN => escaped.push_str("\\fR"),
            other if other.is_ascii() => escaped.push(other),
            other => {
                let _ = write!(escaped, "\\[u{:04X}]", u32::from(other));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{Roff, bold};

    fn written(write: impl FnOnce(&mut Roff)) -> String {
        let mut roff = Roff::default();
        write(&mut roff);
        String::from_utf8(roff.into_bytes()).unwrap()
    }

    #[test]
    fn text_is_escaped_and_filled() {
        assert_eq!(
            written(|it| it.text(".a --b 'c' \\| \"d\"")),
            "\\&.a \\-\\-b \\(aqc\\(aq \\e| \\(dqd\\(dq\n"
        );
        let long = written(|it| it.text(&"word ".repeat(40)));
        assert!(long.lines().count() > 1 && long.lines().all(|line| line.len() < 80), "{long}");
        assert_eq!(written(|it| it.text(&bold("a b"))), "\\fBa\\fR \\fBb\\fR\n");
    }

    #[test]
    fn other_characters_are_named() {
        assert_eq!(written(|it| it.text("\u{e9}")), "\\[u00E9]\n");
    }

    #[test]
    fn arguments_of_macros_are_quoted() {
        let heading = written(|it| it.control("SH", &["EXIT STATUS", ""]));
        assert_eq!(heading, ".SH \"EXIT STATUS\" \"\"\n");
    }
}
