//! Memory of the heap.

use std::io;

/// A buffer that never grows, and so leaves no copy behind.
pub(super) struct Memory(Box<[u8]>);

impl Memory {
    #[allow(clippy::unnecessary_wraps)]
    pub(super) fn zeroed(bytes: usize) -> io::Result<Memory> {
        Ok(Memory(vec![0; bytes].into_boxed_slice()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
