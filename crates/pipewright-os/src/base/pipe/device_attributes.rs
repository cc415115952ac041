//! The question that a console of Windows asks its terminal when it starts, and for whose answer it waits (3 s, from Windows
//! Terminal 1.22 on).

/// The output in which the question comes, if it does: the console asks before it shows anything.
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
    use super::{MOST_BYTES, Question};

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
