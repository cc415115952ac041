//! The arithmetic of the ring, and each decision of a side, beside a peer that may have written anything.

use std::cell::Cell;
use std::collections::{HashSet, VecDeque};

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
                if let Some(place) = place_after(capacity, head, tail, body) {
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
        if let Some(place) = place_after(capacity, head - head % 64, tail, body) {
            prop_assert!(place.body() + body <= capacity);
        }
        may_advance(head, tail, body as u64);
    }
}

const CAPACITY: usize = 4096;

/// The other side's memory, which may contain anything.
struct Peer {
    words: [u64; 3],
    /// The number of looks at `TAIL`.
    looks: Cell<u32>,
    /// The kind and the length of the record at each offset.
    record: fn(usize) -> (u8, u64),
}

/// Returns the memory of a peer that has published one word.
fn published(word: usize, value: u64) -> Peer {
    let mut words = [0; 3];
    words[word] = value;
    Peer { words, looks: Cell::new(0), record: |_| (kind::MESSAGE, 0) }
}

impl PeerMemory for Peer {
    fn bytes(&self) -> usize {
        CAPACITY
    }

    fn word(&self, word: usize) -> u64 {
        self.looks.set(self.looks.get() + u32::from(word == TAIL));
        self.words[word]
    }

    fn word_in_order(&self, word: usize) -> u64 {
        self.words[word]
    }

    fn numbers(&self, at: usize) -> io::Result<[u64; 4]> {
        let (kind, length) = (self.record)(at);
        Ok([u64::from(kind) << 32 | length, 0, 0, 0].map(u64::to_le))
    }
}

/// The words of this side.
#[derive(Default)]
struct Own([Cell<u64>; 3]);

impl Own {
    fn word(&self, word: usize) -> u64 {
        self.0[word].get()
    }
}

impl OwnMemory for Own {
    fn bytes(&self) -> usize {
        CAPACITY
    }

    fn publish(&self, word: usize, value: u64) {
        self.0[word].set(value);
    }

    fn fill(&mut self, _: usize, _: &[u8]) {}

    fn announce(&self, word: usize, value: u64) {
        self.publish(word, value);
    }
}

/// Commits a record with this length of body, for which there is room.
fn commit(producer: &mut Producer, own: &mut Own, peer: &Peer, body: usize) {
    let place = producer.reserve(peer, body).unwrap().unwrap();
    producer.commit(own, place, &Header::new(kind::MESSAGE, body), 0);
}

/// Returns the end of the next record, after everything before `tail` was released.
fn next(tail: u64, head: u64, record: fn(usize) -> (u8, u64)) -> Result<Option<u64>, RingError> {
    let mut consumer = Consumer { tail, head: tail, ..Consumer::new(CAPACITY) };
    let peer = Peer { record, ..published(HEAD, head) };
    Ok(consumer.peek(&peer)?.map(|record| record.end))
}

#[test]
fn a_record_ends_where_the_published_ones_do() {
    let whole = |_| (kind::PART, 100);
    let next = |tail, head| next(tail, head, whole);
    assert_eq!(next(128, 128 + 192), Ok(Some(128 + 192)), "a header and 100 bytes, in lines of 64");
    assert_eq!(next(128, 128 + 128), Err(RingError::Record), "longer than what was published");
    assert_eq!(next(4096 - 64, 4096 + 256), Err(RingError::Record), "beyond the ring");
    assert_eq!(next(128, 128), Ok(None));
}

#[test]
fn padding_makes_room_for_another_record() {
    let padded = |at| if at == 0 { (kind::PART, 0) } else { (kind::PAD, 0) };
    let last = 2 * 4096 - 64;
    assert_eq!(next(last, last + 128, padded), Ok(Some(last + 128)));
    assert_eq!(next(last, last + 64, padded), Err(RingError::Record), "the last record");
    assert_eq!(next(4096 - 128, 4096 - 64, padded), Err(RingError::Record), "beyond the head");
}

#[test]
fn the_longest_body_is_the_longest_that_fits_into_every_empty_ring() {
    let most = max_body_bytes(CAPACITY);
    let mut positions = (0..CAPACITY as u64).step_by(ALIGN_BYTES);
    assert!(positions.all(|at| place_after(CAPACITY, at, at, most).is_some()));
    let middle = CAPACITY as u64 / 2;
    assert_eq!(place_after(CAPACITY, middle, middle, most + 1), None);
    assert_eq!(Producer::new(CAPACITY).max_body_bytes(), most);
}

#[test]
fn a_tail_stays_within_what_was_published_and_never_goes_back() {
    let reserve = |tail| {
        let records = Producer { tail: 64, published: 192, head: 256, ..Producer::new(CAPACITY) };
        let mut producer = records;
        producer.reserve(&published(TAIL, tail), 0).map(|place| place.is_some())
    };
    for tail in [64, 128, 192] {
        assert_eq!(reserve(tail), Ok(true), "{tail}");
    }
    for tail in [0, 65, 256, u64::MAX] {
        assert_eq!(reserve(tail), Err(RingError::Tail), "{tail}");
    }
}

#[test]
fn a_head_stays_within_the_ring_and_never_goes_back() {
    let capacity = CAPACITY as u64;
    let refresh = |head| {
        let mut consumer = Consumer { tail: 64, head: 192, ..Consumer::new(CAPACITY) };
        consumer.refresh_head(&published(HEAD, head))
    };
    assert_eq!(refresh(192), Ok(false));
    for head in [256, 64 + capacity] {
        assert_eq!(refresh(head), Ok(true), "{head}");
    }
    for head in [0, 128, 193, 128 + capacity, u64::MAX] {
        assert_eq!(refresh(head), Err(RingError::Head), "{head}");
    }
}

#[test]
fn each_violation_has_its_own_words() {
    let invalid = crate::wire::Invalid::Kind(0);
    let all = [RingError::Tail, RingError::Head, RingError::Record, RingError::Header(invalid)];
    let words: HashSet<_> = all.iter().map(ToString::to_string).collect();
    assert!(words.len() == all.len() && !words.contains(""), "{words:?}");
}

/// The other side writes that word, and each look at it is slow.
#[test]
fn the_tail_is_looked_at_without_room_and_once_in_64_records() {
    let mut own = Own::default();
    let mut producer = Producer::new(16 << 10);
    let mut peer = published(TAIL, 0);
    let mut looks_before = Vec::new();
    for _ in 0..85 {
        commit(&mut producer, &mut own, &peer, 160);
        looks_before.push(peer.looks.get());
    }
    producer.publish(&own, &peer);
    assert_eq!(looks_before, [[1; 64].as_slice(), &[2; 21]].concat());
    assert_eq!(producer.high_water(), 64 * 192, "found at the last look");
    assert_eq!(producer.reserve(&peer, 160), Ok(None));
    assert_eq!((peer.looks.get(), producer.high_water()), (3, 85 * 192));
    // The ring is empty again.
    peer.words[TAIL] = 85 * 192;
    assert!(producer.reserve(&peer, 160).unwrap().is_some());
    assert_eq!((peer.looks.get(), producer.high_water()), (4, 85 * 192));
}

#[test]
fn committed_records_are_unpublished_until_they_are_published() {
    let (mut own, peer) = (Own::default(), published(SLEEP, 0));
    let mut producer = Producer::new(CAPACITY);
    commit(&mut producer, &mut own, &peer, 0);
    producer.publish(&own, &peer);
    assert_eq!((producer.unpublished(), own.word(HEAD)), (0, 64));
    commit(&mut producer, &mut own, &peer, 0);
    commit(&mut producer, &mut own, &peer, 0);
    assert_eq!((producer.unpublished(), own.word(HEAD)), (128, 64));
    producer.publish(&own, &peer);
    assert_eq!((producer.unpublished(), own.word(HEAD)), (0, 192));
}

#[test]
fn the_other_side_is_woken_once_for_each_of_its_sleeps() {
    let (mut own, mut producer) = (Own::default(), Producer::new(CAPACITY));
    let mut send = |producer: &mut Producer, sleep| {
        let peer = published(SLEEP, sleep);
        commit(producer, &mut own, &peer, 0);
        producer.publish(&own, &peer)
    };
    // It is awake, sleeps for two records, is awake, and sleeps for two records again.
    let woken = [0, 1, 1, 2, 3, 3].map(|sleep| send(&mut producer, sleep));
    assert_eq!(woken, [false, true, false, false, true, false]);
    let [ended, awake, asleep] = [3, 4, 5].map(|sleep| published(SLEEP, sleep));
    assert!(!producer.publish(&Own::default(), &asleep), "no record is new");
    assert_eq!([ended, awake].map(|peer| producer.sleeps(&peer)), [None; 2]);
    assert_eq!(producer.sleeps(&asleep), Some(5));
    // Something else in the socket has ended it.
    producer.note_woken(5);
    assert_eq!(producer.sleeps(&asleep), None);
    assert!(!send(&mut producer, 5));
}

#[test]
fn a_side_with_records_does_not_sleep() {
    let (own, mut consumer) = (Own::default(), Consumer::new(CAPACITY));
    let two = published(HEAD, 128);
    assert!(!consumer.has_records(&published(HEAD, 0)));
    for end in [64, 128] {
        assert!(consumer.has_records(&two), "published");
        assert_eq!(consumer.peek(&two).unwrap().map(|record| record.end), Some(end));
        assert!(consumer.has_records(&two), "looked at");
        assert!(!consumer.fall_asleep(&own, &two));
        consumer.release(&own, end);
    }
    assert_eq!(own.word(SLEEP), 4, "two sleeps have begun and ended");
    assert!(!consumer.has_records(&two));
    assert!(consumer.fall_asleep(&own, &two));
    assert_eq!(own.word(SLEEP), 5);
    // The wait was dropped: it still sleeps, and sleeps again.
    assert!(consumer.fall_asleep(&own, &two));
    assert_eq!(own.word(SLEEP), 7);
    consumer.wake_up(&own);
    consumer.wake_up(&own);
    assert_eq!(own.word(SLEEP), 8, "it was woken once");
    assert!(!consumer.fall_asleep(&own, &published(HEAD, 192)), "a record has arrived");
    assert_eq!(own.word(SLEEP), 10);
}

#[test]
fn a_tail_is_published_after_a_sixteenth_of_the_ring_and_when_it_is_empty() {
    let (own, mut consumer) = (Own::default(), Consumer::new(CAPACITY));
    let peer = published(HEAD, 11 * 64);
    let tails = [(); 11].map(|()| {
        let end = consumer.peek(&peer).unwrap().unwrap().end;
        consumer.release(&own, end);
        own.word(TAIL) / 64
    });
    assert_eq!(tails, [0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 11]);
}
