//! Hints about large buffers.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;

/// Asks for huge pages behind a large buffer.
///
/// Collecting a gigabyte is bound by page faults, and 2 MiB pages make one of 512. A hint: where
/// it does nothing, nothing is wrong.
///
/// # Platform
/// Linux: `madvise(MADV_HUGEPAGE)` on every page of the buffer; elsewhere nothing.
pub fn expect_filling(buffer: &mut Vec<u8>) {
    imp::expect_filling(buffer);
}
