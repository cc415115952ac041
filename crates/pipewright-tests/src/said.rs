//! Streams whose every byte is known to both sides: the puppet's act `play` writes them, and a test knows them.

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
    /// Creates the stream of that number. The kind is `b` for any bytes, `t` for text with long characters and both kinds of line
    /// ends, `l` for short lines, `n` for text without line ends.
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
