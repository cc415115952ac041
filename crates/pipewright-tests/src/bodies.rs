//! Messages and streams whose every byte is known to both sides.

/// Returns the length of message `number`: around every threshold and boundary, or random.
pub fn length(number: u64) -> usize {
    const EDGES: [usize; 14] = [
        0,
        1,
        15,
        32,
        4 << 10,
        8 << 10,
        32 << 10,
        64 << 10,
        128 << 10,
        256 << 10,
        512 << 10,
        1 << 20,
        2 << 20,
        3 << 20,
    ];
    let random = spread(number);
    let edge = EDGES[(random % EDGES.len() as u64) as usize];
    match random >> 32 & 7 {
        0 => edge,
        1 => edge + 1,
        2 => edge.saturating_sub(1),
        3 => edge.saturating_sub(32),
        // Mostly small ones, as in practice.
        4 => (random >> 40) as usize % 200_000,
        _ => (random >> 40) as usize % 10_000,
    }
}

/// Returns message `number` with that length.
pub fn body(number: u64, length: usize, to: &mut Vec<u8>) {
    to.clear();
    to.reserve(length + 8);
    let mut word = spread(number ^ length as u64);
    while to.len() < length {
        to.extend_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31) ^ number;
    }
    to.truncate(length);
}

/// Panics unless that is the message of that number.
#[track_caller]
pub fn check(number: u64, length: usize, bytes: &[u8], expected: &mut Vec<u8>) {
    body(number, length, expected);
    assert_eq!(bytes.len(), length, "message {number}");
    if bytes != expected {
        let at = bytes.iter().zip(expected.iter()).position(|(a, b)| a != b);
        panic!("message {number} of {length} bytes differs at {at:?}");
    }
}

fn spread(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// The length of a table; a prime, so that no piece of a usual size is like the one before it.
const TABLE_BYTES: usize = 8191;

/// The text of a process that a script leaves behind (`w`).
pub const LATE: &[u8] = b"\nlate\n";

/// Returns the next number of a generator (SplitMix64).
pub fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// A stream without end.
#[derive(Debug, Clone)]
pub struct Said {
    table: Vec<u8>,
}

impl Said {
    /// Creates the stream of that number. The kind is `b` for any bytes, `t` for text with long characters and both
    /// kinds of line ends, `l` for short lines, `n` for text without line ends.
    pub fn new(seed: u64, stream: u8, kind: char) -> Said {
        let mut state = seed ^ u64::from(stream) << 56;
        let mut table = Vec::with_capacity(TABLE_BYTES + 4);
        let mut line_bytes = 0;
        while table.len() < TABLE_BYTES {
            let random = mix(&mut state);
            let pick = (random >> 8) as usize;
            let character = match kind {
                'b' => {
                    table.push(random as u8);
                    continue;
                }
                't' if random % 40 == 0 && line_bytes > 0 => '\n',
                't' if random % 40 == 1 => '\r',
                't' if random % 8 == 0 => ['é', '€', '😀', 'ß'][pick % 4],
                'l' if line_bytes > 0 && random % 12 == 0 => '\n',
                _ => char::from(b"abcdefghijklmnopqrstuvwxyz 0123456789"[pick % 37]),
            };
            line_bytes = if character == '\n' { 0 } else { line_bytes + 1 };
            let mut bytes = [0; 4];
            table.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
        }
        Said { table }
    }

    /// Adds that many bytes of it to `to`, from an offset on.
    pub fn copy(&self, from: usize, count: usize, to: &mut Vec<u8>) {
        let mut at = from % self.table.len();
        let end = to.len() + count;
        while to.len() < end {
            let piece = (self.table.len() - at).min(end - to.len());
            to.extend_from_slice(&self.table[at..at + piece]);
            at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_same_as_that_part_of_the_whole() {
        for kind in ['b', 't', 'l', 'n'] {
            let said = Said::new(7, 1, kind);
            let (mut whole, mut parts) = (Vec::new(), Vec::new());
            said.copy(0, 30_000, &mut whole);
            for from in (0..30_000).step_by(1000) {
                said.copy(from, 1000, &mut parts);
            }
            assert!(whole == parts, "{kind}");
        }
        let text = |kind| {
            let mut bytes = Vec::new();
            Said::new(3, 2, kind).copy(0, 8000, &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        assert!(text('l').lines().count() > 100 && !text('n').contains('\n'));
        assert!(text('t').contains('€') && text('t').contains("\r"));
    }
}
