//! The values of one record of an input.

/// The values of one record of an input, such as a line or a row. A record has at least one column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The values, one after the other: a record of one column, the usual one, takes one allocation.
    bytes: Vec<u8>,
    /// The starts of the second value and those after it.
    starts: Vec<usize>,
}

impl Record {
    /// Makes a record of one column.
    #[must_use]
    pub fn new(value: impl Into<Vec<u8>>) -> Record {
        Record { bytes: value.into(), starts: Vec::new() }
    }

    /// Adds a column.
    #[must_use]
    pub fn and(mut self, value: impl AsRef<[u8]>) -> Record {
        self.begin_column();
        self.extend(value.as_ref());
        self
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.starts.len() + 1
    }

    /// Returns the value of a column, which are numbered from 0.
    #[must_use]
    pub fn column(&self, index: usize) -> Option<&[u8]> {
        let start = match index.checked_sub(1) {
            None => 0,
            Some(before) => *self.starts.get(before)?,
        };
        let end = self.starts.get(index).copied().unwrap_or(self.bytes.len());
        self.bytes.get(start..end)
    }

    /// Returns the values.
    pub fn columns(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.column_count()).filter_map(|index| self.column(index))
    }

    /// Begins the next column. An empty one, so far.
    pub(crate) fn begin_column(&mut self) {
        self.starts.push(self.bytes.len());
    }

    /// Adds bytes to the last column.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns all values without anything between them.
    pub(super) fn all_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Record;

    #[test]
    fn columns_are_kept_apart() {
        let record = Record::new("a").and("").and("bc").and("");
        assert_eq!(record.column_count(), 4);
        assert_eq!(record.columns().collect::<Vec<_>>(), [&b"a"[..], b"", b"bc", b""]);
        assert_eq!((record.column(2), record.column(4)), (Some(&b"bc"[..]), None));
        assert_eq!(Record::default().columns().collect::<Vec<_>>(), [b""]);
        assert_ne!(Record::new("ab"), Record::new("a").and("b"));
    }
}
