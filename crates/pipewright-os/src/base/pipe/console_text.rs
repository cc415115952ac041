//! Text of a console of Windows: its keys as UTF-8, and the question that it asks its terminal when it starts.

/// Converts units that may come one by one.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The first half of a pair whose second half has not come.
    first_half: Option<u16>,
}

impl Keys {
    /// Appends what the unit completes. A half without its other one is U+FFFD.
    pub(super) fn push(&mut self, unit: u16, to: &mut Vec<u8>) {
        let is_first_half = (0xd800..0xdc00).contains(&unit);
        let units = self.first_half.take().into_iter().chain((!is_first_half).then_some(unit));
        for letter in char::decode_utf16(units) {
            let letter = letter.unwrap_or(char::REPLACEMENT_CHARACTER);
            to.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        }
        self.first_half = is_first_half.then_some(unit);
    }
}

/// The output in which the question of a console comes, if it does: the console asks before it shows anything, and
/// waits for the answer (3 s, from Windows Terminal 1.22 on).
const MOST_BYTES: usize = 4 << 10;

/// Looks for the question (DA1: `ESC [ c`) in output that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Question {
    /// The part of it that ends what has come.
    begun: usize,
    seen_bytes: usize,
    is_answered: bool,
}

impl Question {
    /// Returns true if a piece completes the question, once.
    pub(super) fn is_asked_by(&mut self, piece: &[u8]) -> bool {
        for byte in piece {
            if self.is_over() {
                return false;
            }
            self.seen_bytes += 1;
            self.begun = match (self.begun, byte) {
                (_, 0x1b) => 1,
                (1, b'[') => 2,
                // A parameter of 0 means the same.
                (2 | 3, b'0') => 3,
                (2 | 3, b'c') => {
                    self.is_answered = true;
                    return true;
                }
                _ => 0,
            };
        }
        false
    }

    /// Returns true if nothing is to be looked for any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_answered || self.seen_bytes >= MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::{Keys, MOST_BYTES, Question};

    #[test]
    fn units_become_utf8_however_they_are_split() {
        let (mut keys, mut bytes) = (Keys::default(), Vec::new());
        let text = "a\u{e9}\u{1f600}\x1b[A\u{1f601}";
        for unit in text.encode_utf16() {
            keys.push(unit, &mut bytes);
        }
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }

    #[test]
    fn a_half_alone_is_replaced() {
        let (mut keys, mut bytes) = (Keys::default(), Vec::new());
        for unit in [0xd83d, 0x61, 0xde00, 0xd83d, 0xd83d, 0xde00] {
            keys.push(unit, &mut bytes);
        }
        assert_eq!(String::from_utf8(bytes).unwrap(), "\u{fffd}a\u{fffd}\u{fffd}\u{1f600}");
    }

    #[test]
    fn the_question_is_found_once_however_it_is_split() {
        let output = b"\x1b[1t\x1b[c\x1b[?1004hhello\x1b[c";
        for size in 1..=output.len() {
            let mut question = Question::default();
            let asked = output.chunks(size).filter(|piece| question.is_asked_by(piece)).count();
            assert_eq!(asked, 1, "pieces of {size}");
        }
        assert!(Question::default().is_asked_by(b"\x1b[0c"));
    }

    #[test]
    fn other_output_is_no_question() {
        for output in
            [&b"\x1b[?1c"[..], b"\x1b[1c", b"\x1b[>c", b"[c", b"\x1b c", b"\x1b[=c", b"\x1b[\x1bc"]
        {
            assert!(!Question::default().is_asked_by(output), "{output:?}");
        }
    }

    #[test]
    fn a_program_that_asks_later_is_answered_by_the_console() {
        let mut question = Question::default();
        assert!(!question.is_asked_by(&[b'x'; MOST_BYTES]));
        assert!(question.is_over());
        assert!(!question.is_asked_by(b"\x1b[c"));
    }
}
