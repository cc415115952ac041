//! Bytes that depend on their offset in the stream, so that lost and repeated bytes are noticed.

use std::io;

/// A prime, so that a lost or repeated block of any usual size is noticed.
const PERIOD: usize = 251;

/// The bytes of a stream, from any offset.
#[derive(Debug)]
pub(crate) struct BytePattern {
    bytes: Vec<u8>,
    /// The bytes depend on their offset. Writers then send from unaligned addresses.
    verify: bool,
}

impl BytePattern {
    /// Creates a pattern for blocks of at most that many bytes.
    pub(crate) fn new(block_bytes: usize, verify: bool) -> BytePattern {
        // Written now: memory that is first touched during the measurement costs page faults.
        let bytes = (0..block_bytes + PERIOD).map(|place| (place % PERIOD) as u8).collect();
        BytePattern { bytes, verify }
    }

    /// Returns the bytes to send at an offset of the stream.
    pub(crate) fn at(&self, place: u64, count: usize) -> &[u8] {
        let start = if self.verify { (place % PERIOD as u64) as usize } else { 0 };
        self.bytes.get(start..start + count).unwrap_or_default()
    }

    /// Checks the bytes received at an offset. Does nothing without a pattern.
    pub(crate) fn check(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.verify || self.at(place, bytes.len()) == bytes {
            return Ok(());
        }
        let differ = self.at(place, bytes.len()).iter().zip(bytes).position(|(a, b)| a != b);
        let at = place + differ.unwrap_or(0) as u64;
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("byte {at} differs from what was sent"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::BytePattern;

    #[test]
    fn sent_bytes_are_expected_at_any_split() {
        let sent = BytePattern::new(1000, true);
        let read = BytePattern::new(4096, true);
        let stream: Vec<u8> =
            (0..20).flat_map(|block| sent.at(block * 1000, 1000).to_vec()).collect();
        let mut place = 0;
        for count in [1, 2, 4096, 333, 4000, 1] {
            read.check(place, &stream[place as usize..][..count]).unwrap();
            place += count as u64;
        }
    }

    #[test]
    fn lost_repeated_and_changed_bytes_are_found() {
        let pattern = BytePattern::new(8192, true);
        for lost in [1_u64, 512, 4096, 65_536, 1 << 20] {
            assert!(pattern.check(0, pattern.at(lost, 4096)).is_err(), "{lost}");
        }
        let mut bytes = pattern.at(10_000, 100).to_vec();
        bytes[7] ^= 1;
        let error = pattern.check(10_000, &bytes).unwrap_err();
        assert_eq!(error.to_string(), "byte 10007 differs from what was sent");
        // Without a pattern nothing is checked.
        BytePattern::new(8192, false).check(0, &bytes).unwrap();
    }
}
