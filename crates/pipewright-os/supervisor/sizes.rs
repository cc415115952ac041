//! Sizes of what the kernel writes: a library would know them.

/// `struct rusage` (getrusage(2)), in words of 64 bits: four of times, and fourteen counts.
pub(crate) const RUSAGE_WORDS: usize = 18;
