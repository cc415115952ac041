//! The bodies of the handshake: lines of text, readable in a trace and easy to write by hand.

/// The longest body.
pub(crate) const MAX_HELLO_BYTES: usize = 4096;

/// Lines of `key=value`, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HelloFields(Vec<(String, String)>);

impl HelloFields {
    /// Adds a field, without control characters in its value.
    pub(crate) fn set(&mut self, key: &str, value: impl ToString) {
        let mut value = value.to_string();
        value.retain(|character| !character.is_control());
        self.0.push((key.to_owned(), value));
    }

    /// Returns the value of a field. The first of two equal keys counts.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a field as a number.
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// Returns the body, with this first line.
    pub(crate) fn encode(&self, first: &str) -> Vec<u8> {
        let mut text = format!("{first}\n");
        for (key, value) in &self.0 {
            text += &format!("{key}={value}\n");
        }
        text.into_bytes()
    }

    /// Returns the fields of a body, if its first line matches. Ignores lines without `=`, so that later versions
    /// can add others.
    pub(crate) fn decode(body: &[u8], first: &str) -> Option<HelloFields> {
        let text = std::str::from_utf8(body).ok()?;
        let mut lines = text.lines();
        if lines.next() != Some(first) {
            return None;
        }
        let field = |line: &str| {
            let (key, value) = line.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        };
        Some(HelloFields(lines.filter_map(field).collect()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn body_consists_of_lines() {
        let mut fields = HelloFields::default();
        fields.set("version", 1);
        fields.set("app", "a=b\nsalt=stolen");
        assert_eq!(fields.encode("x"), b"x\nversion=1\napp=a=bsalt=stolen\n");
    }

    #[test]
    fn unknown_lines_are_ignored_and_first_key_counts() {
        let fields = HelloFields::decode(b"x\nnew thing\nn=1\nn=2\nm=-1\n", "x").unwrap();
        assert_eq!(
            (fields.number("n"), fields.number("m"), fields.get("k")),
            (Some(1), None, None)
        );
        assert_eq!(HelloFields::decode(b"y\nn=1\n", "x"), None);
        assert_eq!(HelloFields::decode(b"", "x"), None);
        assert_eq!(HelloFields::decode(b"x\n\xff=1\n", "x"), None);
    }

    proptest! {
        #[test]
        fn values_survive_without_control_characters(value: String, body: Vec<u8>) {
            let mut fields = HelloFields::default();
            fields.set("key", &value);
            let back = HelloFields::decode(&fields.encode("first"), "first").unwrap();
            let expected: String = value.chars().filter(|it| !it.is_control()).collect();
            prop_assert_eq!(back.get("key"), Some(expected.as_str()));
            let _ = HelloFields::decode(&body, "first");
        }
    }
}
