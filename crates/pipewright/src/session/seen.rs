//! The output of a terminal as a person has seen it: text without control sequences, and lines as they were overwritten.

/// The distance of tab stops.
const TAB: usize = 8;

/// The longest line that is kept as one. A terminal wraps sooner.
const MOST_COLUMNS: usize = 4 << 10;

/// The lines of a terminal without a height: what scrolls away stays.
#[derive(Default)]
struct Lines {
    text: String,
    line: Vec<char>,
    column: usize,
}

/// Returns what these bytes show, on a terminal without a height, and no more than the last `most` bytes of it.
pub(super) fn seen(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = Lines::default();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        match character {
            '\x1b' => lines.sequence(&mut rest),
            other => lines.put(other),
        }
    }
    lines.end();
    let seen = lines.text;
    let from = seen.len().saturating_sub(most);
    let from = (from..=seen.len()).find(|at| seen.is_char_boundary(*at)).unwrap_or(0);
    seen.get(from..).unwrap_or_default().to_owned()
}

impl Lines {
    fn put(&mut self, character: char) {
        match character {
            '\n' => {
                self.end();
                self.text.push('\n');
            }
            '\r' => self.column = 0,
            '\x08' => self.column = self.column.saturating_sub(1),
            '\t' => self.go_to((self.column / TAB + 1) * TAB),
            control if control.is_control() => {}
            shown => {
                if self.column >= MOST_COLUMNS {
                    self.end();
                }
                self.go_to(self.column);
                match self.line.get_mut(self.column) {
                    Some(place) => *place = shown,
                    None => self.line.push(shown),
                }
                self.column += 1;
            }
        }
    }

    /// Moves the cursor in the line. What it passes over is blank.
    fn go_to(&mut self, column: usize) {
        self.column = column.min(MOST_COLUMNS);
        while self.line.len() < self.column {
            self.line.push(' ');
        }
    }

    /// Ends the line, with the column of a line feed: terminals get a carriage return with it.
    fn end(&mut self) {
        let line: String = self.line.drain(..).collect();
        self.text.push_str(line.trim_end());
        self.column = 0;
    }

    /// Reads a control sequence, and obeys those that change the line.
    fn sequence(&mut self, rest: &mut std::str::Chars<'_>) {
        match rest.next() {
            Some('[') => {
                let mut parameters = String::new();
                let last = rest.find(|character| {
                    let ends = matches!(character, '\x40'..='\x7e');
                    if !ends {
                        parameters.push(*character);
                    }
                    ends
                });
                self.obey(last.unwrap_or_default(), &parameters);
            }
            // A string, such as a title: up to BEL or ESC \.
            Some(']' | 'P' | '^' | '_') => {
                while let Some(character) = rest.next() {
                    if character == '\x07' {
                        return;
                    }
                    if character == '\x1b' {
                        rest.next();
                        return;
                    }
                }
            }
            // A choice of a character set.
            Some('(' | ')' | '*' | '+' | '#' | '%') => drop(rest.next()),
            _ => {}
        }
    }

    fn obey(&mut self, last: char, parameters: &str) {
        let first = parameters.split(';').next().unwrap_or_default();
        let count = || first.parse().unwrap_or(1_usize).clamp(1, MOST_COLUMNS);
        match (last, first) {
            ('K', "" | "0") => self.line.truncate(self.column),
            ('K', "2") => self.line.clear(),
            ('C', _) => self.go_to(self.column + count()),
            ('D', _) => self.column = self.column.saturating_sub(count()),
            ('G', _) => self.go_to(count() - 1),
            // The cursor goes to another row, and the screen is drawn anew: a line of its own.
            ('H' | 'f' | 'J', _) if !self.line.is_empty() => {
                self.end();
                self.text.push('\n');
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> String {
        seen(bytes, usize::MAX)
    }

    #[test]
    fn colours_and_titles_are_not_seen() {
        let bytes = b"\x1b]0;title\x07\x1b[1;31mred\x1b[0m \x1b(Bplain\x1b]8;;x\x1b\\link\r\n";
        assert_eq!(all(bytes), "red plainlink\n");
    }

    #[test]
    fn a_line_is_seen_as_it_was_overwritten() {
        assert_eq!(all(b"  5 %\r 50 %\r100 %\r\ndone"), "100 %\ndone");
        assert_eq!(all(b"a long line\rshort\x1b[K\r\n"), "short\n");
        assert_eq!(all(b"abc\x08\x08X\r\n"), "aXc\n");
        assert_eq!(all(b"a\tb\x1b[3Cc\x1b[1Gd"), "d       b   c");
    }

    #[test]
    fn bytes_that_are_no_text_and_sequences_that_do_not_end_are_harmless() {
        assert_eq!(all(b"a\xffb\x00\x1b[12"), "a\u{fffd}b");
        assert_eq!(all(b"a\x1b"), "a");
        assert_eq!(all(b"a\x1b]title"), "a");
        let far = all(b"\x1b[999999999999C.\x1b[4000000000C.\x1b[65535Gx");
        assert!(far.len() < 2 * MOST_COLUMNS, "{}", far.len());
    }

    #[test]
    fn the_end_of_a_long_line_is_seen() {
        let line = format!("{}end", "x".repeat(3 * MOST_COLUMNS));
        assert_eq!(all(line.as_bytes()), line);
        assert_eq!(seen(line.as_bytes(), 4), "xend");
    }

    #[test]
    fn the_last_bytes_are_kept_at_the_begin_of_a_character() {
        assert_eq!(seen("aäöü".as_bytes(), 5), "öü");
        assert_eq!(seen(b"abc", 0), "");
    }
}
