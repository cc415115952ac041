//! The bodies of the handshake: lines of text, so that they can be read in a trace and written by hand.

/// The most bytes that such a body may have.
pub(crate) const MOST_HELLO_BYTES: usize = 4096;

/// `key=value` lines, in the order in which they stand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Adds a field. What would break its line is left out of it.
    pub(crate) fn set(&mut self, key: &str, value: impl ToString) {
        let mut value = value.to_string();
        value.retain(|character| !character.is_control());
        self.0.push((key.to_owned(), value));
    }

    /// The value of a field, if it is there. Where it stands twice the first counts.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
    }

    /// As [`get`](Self::get), as a number.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// The body, with that first line.
    pub(crate) fn encode(&self, first: &str) -> Vec<u8> {
        let mut text = format!("{first}\n");
        for (key, value) in &self.0 {
            text += &format!("{key}={value}\n");
        }
        text.into_bytes()
    }

    /// The fields of a body, if that is its first line. Lines that are no fields are passed over, so
    /// that later versions can say more.
    pub(crate) fn decode(body: &[u8], first: &str) -> Option<Fields> {
        let text = std::str::from_utf8(body).ok()?;
        let mut lines = text.lines();
        if lines.next() != Some(first) {
            return None;
        }
        let field = |line: &str| {
            let (key, value) = line.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        };
        Some(Fields(lines.filter_map(field).collect()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_body_is_lines() {
        let mut fields = Fields::default();
        fields.set("version", 1);
        fields.set("app", "a=b\nsalt=stolen");
        assert_eq!(fields.encode("x"), b"x\nversion=1\napp=a=bsalt=stolen\n");
    }

    #[test]
    fn unknown_lines_are_passed_over_and_the_first_of_two_counts() {
        let fields = Fields::decode(b"x\nnew thing\nn=1\nn=2\nm=-1\n", "x").unwrap();
        assert_eq!(
            (fields.number("n"), fields.number("m"), fields.get("k")),
            (Some(1), None, None)
        );
        assert_eq!(Fields::decode(b"y\nn=1\n", "x"), None);
        assert_eq!(Fields::decode(b"", "x"), None);
        assert_eq!(Fields::decode(b"x\n\xff=1\n", "x"), None);
    }

    proptest! {
        #[test]
        fn every_value_comes_back_without_its_control_characters(value: String, body: Vec<u8>) {
            let mut fields = Fields::default();
            fields.set("key", &value);
            let back = Fields::decode(&fields.encode("first"), "first").unwrap();
            let expected: String = value.chars().filter(|it| !it.is_control()).collect();
            prop_assert_eq!(back.get("key"), Some(expected.as_str()));
            let _ = Fields::decode(&body, "first");
        }
    }
}
