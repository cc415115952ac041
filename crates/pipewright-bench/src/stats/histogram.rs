//! Reads counted by size, in powers of two.

use serde::{Deserialize, Serialize};

/// Sizes below 2^40; each belongs to the class of the largest power of two that is not larger.
const CLASSES: usize = 40;

/// The reads of a measurement, by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadSizes([u64; CLASSES]);

/// The reads of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SizeClass {
    /// The smallest size; the largest is less than twice as much.
    pub(crate) from_bytes: u64,
    /// The number of reads.
    pub(crate) reads: u64,
}

impl Default for ReadSizes {
    fn default() -> ReadSizes {
        ReadSizes([0; CLASSES])
    }
}

impl ReadSizes {
    /// Counts reads of one size.
    pub(crate) fn of(reads: u64, bytes: usize) -> ReadSizes {
        let mut all = ReadSizes::default();
        all.add(reads, bytes);
        all
    }

    /// Adds reads of one size. Size 0 counts as 1.
    #[inline]
    pub(crate) fn add(&mut self, reads: u64, bytes: usize) {
        let class = bytes.max(1).ilog2() as usize;
        if let Some(count) = self.0.get_mut(class) {
            *count += reads;
        }
    }

    /// Adds the reads of another measurement.
    pub(crate) fn merge(&mut self, other: &ReadSizes) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// Returns the number of reads.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the classes that are not empty.
    pub(crate) fn classes(&self) -> Vec<SizeClass> {
        let classes = self.0.iter().enumerate().filter(|(_, reads)| **reads > 0);
        classes.map(|(class, reads)| SizeClass { from_bytes: 1 << class, reads: *reads }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_read_is_in_the_class_of_its_size() {
        let mut reads = ReadSizes::of(3, 4096);
        for bytes in [1, 4095, 4097, 8191, 65_536] {
            reads.add(1, bytes);
        }
        let class = |from_bytes, reads| SizeClass { from_bytes, reads };
        let expected = [class(1, 1), class(2048, 1), class(4096, 5), class(65_536, 1)];
        assert_eq!(reads.classes(), expected);
        let mut all = reads;
        all.merge(&reads);
        assert_eq!((reads.count(), all.count()), (8, 16));
        assert_eq!(ReadSizes::default().classes(), []);
    }
}
