//! The receiver of an attempt's output.

use std::fmt;

use pipewright::Source;

/// The receiver of an attempt's output. The executor calls it as the bytes arrive, and drops it before it reports the end
/// of the attempt.
pub trait OutputSink: Send + fmt::Debug {
    /// Takes bytes of a stream, in the order in which they were written to that stream. Must not block.
    fn write(&mut self, stream: Source, bytes: &[u8]);
}
