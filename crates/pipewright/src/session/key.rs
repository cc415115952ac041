//! The bytes of keys.

/// A key of a keyboard, with the bytes that xterm and most other terminals send for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Key {
    /// Enter: a carriage return.
    Enter,
    /// Tab.
    Tab,
    /// Escape.
    Escape,
    /// Backspace: DEL, which Linux terminals erase with.
    Backspace,
    /// An arrow key.
    Up,
    /// An arrow key.
    Down,
    /// An arrow key.
    Left,
    /// An arrow key.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page Up.
    PageUp,
    /// Page Down.
    PageDown,
    /// Insert.
    Insert,
    /// Delete.
    Delete,
    /// A function key, F1 to F12. Others type nothing.
    F(u8),
    /// A letter, or one of `@ [ \ ] ^ _`, with the Control key. Other characters are typed as they are.
    Ctrl(char),
    /// A character with the Alt key.
    Alt(char),
}

impl Key {
    /// Returns the bytes. `application_cursor`: the program has asked for the other codes of the arrow keys.
    pub(super) fn bytes(self, application_cursor: bool) -> Vec<u8> {
        let cursor = |letter: char| match application_cursor {
            true => format!("\x1bO{letter}"),
            false => format!("\x1b[{letter}"),
        };
        let numbered = |number: u8| format!("\x1b[{number}~");
        let text = match self {
            Key::Enter => "\r".to_owned(),
            Key::Tab => "\t".to_owned(),
            Key::Escape => "\x1b".to_owned(),
            Key::Backspace => "\x7f".to_owned(),
            Key::Up => cursor('A'),
            Key::Down => cursor('B'),
            Key::Right => cursor('C'),
            Key::Left => cursor('D'),
            Key::Home => cursor('H'),
            Key::End => cursor('F'),
            Key::Insert => numbered(2),
            Key::Delete => numbered(3),
            Key::PageUp => numbered(5),
            Key::PageDown => numbered(6),
            Key::F(number @ 1..=4) => format!("\x1bO{}", char::from(b'P' + number - 1)),
            Key::F(5) => numbered(15),
            Key::F(number @ 6..=10) => numbered(number + 11),
            Key::F(number @ 11..=12) => numbered(number + 12),
            Key::F(_) => String::new(),
            Key::Ctrl(character @ ('@'..='_' | 'a'..='z')) => {
                char::from(character.to_ascii_uppercase() as u8 & 0x1f).to_string()
            }
            Key::Ctrl(character) => character.to_string(),
            Key::Alt(character) => format!("\x1b{character}"),
        };
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_bytes_of_xterm() {
        let of = |key: Key| String::from_utf8(key.bytes(false)).unwrap();
        assert_eq!(
            [of(Key::Ctrl('c')), of(Key::Ctrl('C')), of(Key::Ctrl('['))],
            ["\x03", "\x03", "\x1b"]
        );
        assert_eq!(
            [of(Key::Ctrl('@')), of(Key::Ctrl('_')), of(Key::Alt('x'))],
            ["\0", "\x1f", "\x1bx"]
        );
        assert_eq!([of(Key::F(1)), of(Key::F(4)), of(Key::F(5))], ["\x1bOP", "\x1bOS", "\x1b[15~"]);
        assert_eq!(
            [of(Key::F(6)), of(Key::F(10)), of(Key::F(11))],
            ["\x1b[17~", "\x1b[21~", "\x1b[23~"]
        );
        assert_eq!([of(Key::F(12)), of(Key::F(0)), of(Key::F(13))], ["\x1b[24~", "", ""]);
        assert_eq!(of(Key::Up), "\x1b[A");
        assert_eq!(Key::Up.bytes(true), b"\x1bOA");
    }
}
