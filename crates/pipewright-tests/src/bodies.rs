//! Messages whose every byte is known to both sides.

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
    let random = mix(number);
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
    let mut word = mix(number ^ length as u64);
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

fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}
