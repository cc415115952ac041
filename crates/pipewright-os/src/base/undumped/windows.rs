//! Memory of the heap.

use std::io;

/// A buffer that never grows, and so leaves no copy behind.
pub(super) struct Memory(Box<[u8]>);

impl Memory {
    pub(super) fn zeroed(bytes: usize) -> io::Result<Memory> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        buffer.resize(bytes, 0);
        Ok(Memory(buffer.into_boxed_slice()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
