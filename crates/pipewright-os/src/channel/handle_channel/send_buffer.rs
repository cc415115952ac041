//! The buffer of bytes that the system has not accepted yet.

use std::io::{self, IoSlice};

#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    buffer: Vec<u8>,
    /// The number of bytes already accepted.
    start: usize,
}

impl SendBuffer {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Removes bytes that were accepted.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start >= self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            if self.buffer.capacity() > MAX_KEPT_BYTES {
                self.buffer = Vec::new();
            }
        }
    }

    /// Appends the rest of the parts, of which `taken` bytes were accepted.
    pub(super) fn keep_rest(&mut self, parts: &[IoSlice<'_>], taken: usize) -> io::Result<()> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let rest = total.saturating_sub(taken);
        if rest == 0 {
            return Ok(());
        }
        self.buffer.try_reserve(rest).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut skip = taken;
        for part in parts {
            let now = skip.min(part.len());
            self.buffer.extend_from_slice(part.get(now..).unwrap_or_default());
            skip -= now;
        }
        Ok(())
    }
}

/// The capacity above which an empty buffer is freed.
const MAX_KEPT_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_bytes_of_several_parts_are_not_kept() {
        let parts = [IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defg")];
        for taken in 0..=7 {
            let mut send_buffer = SendBuffer::default();
            send_buffer.keep_rest(&parts, taken).unwrap();
            assert_eq!(send_buffer.bytes(), &b"abcdefg"[taken..]);
            assert_eq!(send_buffer.is_empty(), taken == 7);
        }
    }
}
