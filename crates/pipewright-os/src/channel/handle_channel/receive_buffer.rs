//! The buffer of received bytes, consumed from the front.

use std::io;

use super::READ_AHEAD_BYTES;

#[derive(Debug, Default)]
pub(super) struct ReceiveBuffer {
    buffer: Vec<u8>,
    /// The number of bytes already consumed.
    start: usize,
}

impl ReceiveBuffer {
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.buffer.len());
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
    }

    /// Returns the buffer, with space for one read-ahead.
    pub(super) fn room(&mut self) -> io::Result<&mut Vec<u8>> {
        if self.buffer.capacity() - self.buffer.len() < READ_AHEAD_BYTES {
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            if self.buffer.is_empty() && self.buffer.capacity() > 4 * READ_AHEAD_BYTES {
                // The buffer had to grow while the reader was blocked. Shrink it again.
                self.buffer = Vec::new();
            }
            self.buffer.try_reserve(READ_AHEAD_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        Ok(&mut self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_consumed_in_order() {
        let mut receive_buffer = ReceiveBuffer::default();
        let mut received = 0_usize;
        let mut left = 0_usize;
        for round in 1..500 {
            let room = receive_buffer.room().unwrap();
            assert!(room.capacity() - room.len() >= READ_AHEAD_BYTES);
            for _ in 0..(round * 37) % 9_000 {
                room.push((received % 251) as u8);
                received += 1;
            }
            let leave = (round * 113) % (receive_buffer.bytes().len() + 1);
            for byte in &receive_buffer.bytes()[..leave] {
                assert_eq!(*byte, (left % 251) as u8);
                left += 1;
            }
            receive_buffer.consume(leave);
        }
        assert_eq!(receive_buffer.bytes().len(), received - left);
        receive_buffer.consume(usize::MAX / 2);
        assert!(receive_buffer.bytes().is_empty());
    }
}
