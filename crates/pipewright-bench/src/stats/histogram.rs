//! How many reads brought how much: counted by powers of two.

use serde::{Deserialize, Serialize};

/// Sizes below 2^40, each in the class of the largest power of two that is not above it.
const CLASSES: usize = 40;

/// The reads of a measurement, by what they brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reads([u64; CLASSES]);

/// One class, as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Class {
    /// At least so many bytes, and less than twice as many.
    pub(crate) from_bytes: u64,
    pub(crate) reads: u64,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads([0; CLASSES])
    }
}

impl Reads {
    /// So many reads of that size.
    pub(crate) fn of(reads: u64, bytes: usize) -> Reads {
        let mut all = Reads::default();
        all.add(reads, bytes);
        all
    }

    /// So many more of that size; of nothing nobody reads.
    #[inline]
    pub(crate) fn add(&mut self, reads: u64, bytes: usize) {
        let class = bytes.max(1).ilog2() as usize;
        if let Some(count) = self.0.get_mut(class) {
            *count += reads;
        }
    }

    pub(crate) fn merge(&mut self, other: &Reads) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those classes that there are reads of.
    pub(crate) fn classes(&self) -> Vec<Class> {
        let classes = self.0.iter().enumerate().filter(|(_, reads)| **reads > 0);
        classes.map(|(class, reads)| Class { from_bytes: 1 << class, reads: *reads }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_is_in_the_class_of_its_size() {
        let mut reads = Reads::of(3, 4096);
        for bytes in [1, 4095, 4097, 8191, 65_536] {
            reads.add(1, bytes);
        }
        let class = |from_bytes, reads| Class { from_bytes, reads };
        let expected = [class(1, 1), class(2048, 1), class(4096, 5), class(65_536, 1)];
        assert_eq!(reads.classes(), expected);
        let mut all = reads;
        all.merge(&reads);
        assert_eq!((reads.count(), all.count()), (8, 16));
        assert_eq!(Reads::default().classes(), []);
    }
}
