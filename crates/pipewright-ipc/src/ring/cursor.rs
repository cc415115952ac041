//! Where records go: arithmetic, and nothing else.
//!
//! Positions count bytes since the start and never go back; the place in the ring is what is left of one
//! after division by the ring's size, which is a power of two. 64 bits of them last for decades.

use super::RECORD_HEADER_BYTES;

/// Records begin at multiples of this: a line of a cache.
const ALIGN_BYTES: usize = 64;

/// Where a record goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where the rest of the ring has to be filled up, if it has to be.
    pub(crate) pad: Option<usize>,
    /// Where the record stands in the ring.
    pub(crate) at: usize,
    /// The position behind it.
    pub(crate) end: u64,
}

impl Place {
    /// Where the body stands in the ring.
    pub(crate) fn body(&self) -> usize {
        self.at + RECORD_HEADER_BYTES
    }
}

/// How much of the ring a record with so much body takes; `None` where no ring could have it.
#[inline]
pub(crate) fn record_bytes(body: usize) -> Option<usize> {
    body.checked_add(RECORD_HEADER_BYTES)?.checked_next_multiple_of(ALIGN_BYTES)
}

/// The place for a record behind `head`, where everything before `tail` is free; `None`: no room now.
#[inline]
pub(crate) fn place(capacity: usize, head: u64, tail: u64, body: usize) -> Option<Place> {
    let bytes = record_bytes(body)?;
    let free = (capacity as u64).checked_sub(head.checked_sub(tail)?)?;
    let at = offset(capacity, head);
    let left = capacity - at;
    let (pad, at, skipped) = if bytes <= left { (None, at, 0) } else { (Some(at), 0, left) };
    let taken = bytes.checked_add(skipped)? as u64;
    (taken <= free && bytes <= capacity).then_some(Place { pad, at, end: head + taken })
}

/// Where a position is in the ring.
#[inline]
pub(crate) fn offset(capacity: usize, position: u64) -> usize {
    (position & (capacity as u64 - 1)) as usize
}

/// The most body that a record may have so that it finds room in every empty ring, wherever that
/// begins.
pub(crate) fn most_body_bytes(capacity: usize) -> usize {
    capacity / 2 - RECORD_HEADER_BYTES
}

/// Whether somebody may say to have come to `new` after `old`, with that much room in between.
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
        /// Records as a producer places them and a consumer finds them: inside, apart, in order.
        #[test]
        fn records_never_overlap_and_never_leave_the_ring(
            doublings in 0_u32..3, bodies in prop::collection::vec(0_usize..9_000, 1..200)
        ) {
            let capacity = 4096 << doublings;
            let (mut head, mut tail) = (0_u64, 0_u64);
            let mut used = VecDeque::new();
            for body in bodies {
                let body = body.min(most_body_bytes(capacity));
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
                    // An empty ring has room for everything that may be sent through it.
                    let (_, end) = used.pop_front().unwrap();
                    prop_assert!(may_advance(tail, end, head - tail));
                    tail = end;
                }
            }
        }

        #[test]
        fn no_numbers_make_it_panic_or_leave_the_ring(
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
