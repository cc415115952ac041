//! Text of a console, which comes as units of UTF-16, as bytes of UTF-8.

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

#[cfg(test)]
mod tests {
    use super::Keys;

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
}
