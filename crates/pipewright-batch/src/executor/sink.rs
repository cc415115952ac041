//! The receiver of an attempt's output.

use std::fmt;

use pipewright::Source;

/// The receiver of an attempt's output. The executor calls it as the bytes arrive, and drops it before it reports the end
/// of the attempt.
pub trait OutputSink: Send + fmt::Debug {
    /// Takes bytes of a stream, in the order in which they were written to that stream. Must not block.
    fn write(&mut self, stream: Source, bytes: &[u8]);

    /// Returns true if somebody watches the output, so that it must not wait for more. Otherwise the executor may
    /// hand it over up to 1 ms late, in larger pieces.
    fn is_live(&self) -> bool {
        true
    }
}
