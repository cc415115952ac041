//! Bytes of which each says where in the stream it belongs, for `--verify`.

use std::io;

/// A prime, so that no block of a usual size that is lost or comes twice goes unseen.
const PERIOD: usize = 251;

/// Blocks of a stream, from wherever they begin.
#[derive(Debug)]
pub(super) struct Pattern {
    bytes: Vec<u8>,
    /// Whether the bytes depend on their place, which costs those who write the alignment.
    verify: bool,
}

impl Pattern {
    /// For blocks of at most so many bytes.
    pub(super) fn new(block_bytes: usize, verify: bool) -> Pattern {
        // Written to here: memory that is first touched while it is sent costs page faults.
        let bytes = (0..block_bytes + PERIOD).map(|place| (place % PERIOD) as u8).collect();
        Pattern { bytes, verify }
    }

    /// So many bytes, to be sent at that place of the stream.
    pub(super) fn at(&self, place: u64, count: usize) -> &[u8] {
        let start = if self.verify { (place % PERIOD as u64) as usize } else { 0 };
        self.bytes.get(start..start + count).unwrap_or_default()
    }

    /// Whether these are the bytes of that place. What was sent without a pattern is not looked at.
    pub(super) fn check(&self, place: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.verify || self.at(place, bytes.len()) == bytes {
            return Ok(());
        }
        let differ = self.at(place, bytes.len()).iter().zip(bytes).position(|(a, b)| a != b);
        let at = place + differ.unwrap_or(0) as u64;
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("byte {at} is not what was sent")))
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn what_is_sent_is_what_is_expected_wherever_it_is_cut() {
        let sent = Pattern::new(1000, true);
        let read = Pattern::new(4096, true);
        let stream: Vec<u8> =
            (0..20).flat_map(|block| sent.at(block * 1000, 1000).to_vec()).collect();
        let mut place = 0;
        for count in [1, 2, 4096, 333, 4000, 1] {
            read.check(place, &stream[place as usize..][..count]).unwrap();
            place += count as u64;
        }
    }

    #[test]
    fn what_is_lost_doubled_or_changed_is_found() {
        let pattern = Pattern::new(8192, true);
        for lost in [1_u64, 512, 4096, 65_536, 1 << 20] {
            assert!(pattern.check(0, pattern.at(lost, 4096)).is_err(), "{lost}");
        }
        let mut bytes = pattern.at(10_000, 100).to_vec();
        bytes[7] ^= 1;
        let error = pattern.check(10_000, &bytes).unwrap_err();
        assert_eq!(error.to_string(), "byte 10007 is not what was sent");
        // And without a pattern nothing is looked at.
        Pattern::new(8192, false).check(0, &bytes).unwrap();
    }
}
