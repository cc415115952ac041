//! The positions of records: pure arithmetic.
//!
//! Positions count bytes since the start and never go back. The offset in the ring is the position modulo the ring's
//! size, a power of two. 64 bits last for decades.

use super::RECORD_HEADER_BYTES;

/// The alignment of records: a cache line.
const ALIGN_BYTES: usize = 64;

/// The place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    /// The offset of the padding that fills the rest of the ring before it, if needed.
    pub(crate) pad: Option<usize>,
    /// The offset of the record in the ring.
    pub(crate) at: usize,
    /// The position after it.
    pub(crate) end: u64,
}

impl RecordPlace {
    /// Returns the offset of the body in the ring.
    pub(crate) fn body(&self) -> usize {
        self.at + RECORD_HEADER_BYTES
    }
}

/// Returns the size of a record with this length of body. `None`: no ring could hold it.
#[inline]
pub(crate) fn record_bytes(body: usize) -> Option<usize> {
    body.checked_add(RECORD_HEADER_BYTES)?.checked_next_multiple_of(ALIGN_BYTES)
}

/// Returns the place for a record after `head` if everything before `tail` is free. `None`: no room now.
#[inline]
pub(crate) fn place(capacity: usize, head: u64, tail: u64, body: usize) -> Option<RecordPlace> {
    let bytes = record_bytes(body)?;
    let free = (capacity as u64).checked_sub(head.checked_sub(tail)?)?;
    let at = offset(capacity, head);
    let left = capacity - at;
    let (pad, at, skipped) = if bytes <= left { (None, at, 0) } else { (Some(at), 0, left) };
    let taken = bytes.checked_add(skipped)? as u64;
    (taken <= free && bytes <= capacity).then_some(RecordPlace { pad, at, end: head + taken })
}

/// Returns the offset of a position in the ring.
#[inline]
pub(crate) fn offset(capacity: usize, position: u64) -> usize {
    (position & (capacity as u64 - 1)) as usize
}

/// Returns the longest body that fits into every empty ring, wherever its positions are.
pub(crate) fn max_body_bytes(capacity: usize) -> usize {
    capacity / 2 - RECORD_HEADER_BYTES
}

/// Returns true if a counter may advance from `old` to `new` with this much room.
#[inline]
pub(crate) fn may_advance(old: u64, new: u64, room: u64) -> bool {
    new.checked_sub(old).is_some_and(|more| more <= room) && new % ALIGN_BYTES as u64 == 0
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Records stay inside the ring, apart and in order.
        #[test]
        fn records_never_overlap_and_never_leave_the_ring(
            doublings in 0_u32..3, bodies in prop::collection::vec(0_usize..9_000, 1..200)
        ) {
            let capacity = 4096 << doublings;
            let (mut head, mut tail) = (0_u64, 0_u64);
            let mut used = VecDeque::new();
            for body in bodies {
                let body = body.min(max_body_bytes(capacity));
                loop {
                    if let Some(place) = place(capacity, head, tail, body) {
                        let range = place.at..place.at + record_bytes(body).unwrap();
                        prop_assert!(range.end <= capacity);
                        prop_assert_eq!(place.at % ALIGN_BYTES, 0);
                        for (other, _) in &used {
                            let other: &std::ops::Range<usize> = other;
                            prop_assert!(range.end <= other.start || other.end <= range.start);
                        }
                        if let Some(pad) = place.pad {
                            prop_assert!(pad < capacity && pad % ALIGN_BYTES == 0);
                            prop_assert_eq!(pad, offset(capacity, head));
                        }
                        prop_assert_eq!(offset(capacity, place.end) % ALIGN_BYTES, 0);
                        used.push_back((range, place.end));
                        head = place.end;
                        break;
                    }
                    // An empty ring has room for every allowed record.
                    let (_, end) = used.pop_front().unwrap();
                    prop_assert!(may_advance(tail, end, head - tail));
                    tail = end;
                }
            }
        }

        #[test]
        fn arithmetic_never_panics_or_leaves_the_ring(
            doublings in 0_u32..3, head: u64, tail: u64, body: usize
        ) {
            let capacity = 4096 << doublings;
            if let Some(place) = place(capacity, head - head % 64, tail, body) {
                prop_assert!(place.body() + body <= capacity);
            }
            may_advance(head, tail, body as u64);
        }
    }
}
