//! Sizes of structs that the kernel writes, which a library would define.

/// The size of `struct rusage` (getrusage(2)), in words of 64 bits: four of times, and fourteen counts.
pub(crate) const RUSAGE_WORDS: usize = 18;
