//! The ring between two threads, over the memory that two processes use. Miri and a thread sanitizer run it too
//! (`ci/sanitize.sh`): they report a body that is read before it is written, or overwritten before it was read,
//! wherever that happens.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use pipewright_os::base::skipped::{Need, skipped};
use pipewright_os::channel::shm::{BLOCK_BYTES, Seen, ShmOptions, Written};

use super::{OwnMemory as _, Ring};
use crate::wire::{Header, kind};

/// Small, so that it is full and wraps around often.
const OPTIONS: ShmOptions = ShmOptions { bytes: 4096, prefault: true };

const MESSAGES: u64 = if cfg!(miri) { 150 } else { 20_000 };

type RingSide = Ring<Written, Seen>;

/// Returns both sides, unless this build or machine has no shared memory.
fn both() -> Option<(RingSide, RingSide)> {
    let (Ok(first), Ok(second)) = (Written::create(OPTIONS), Written::create(OPTIONS)) else {
        skipped(Need::SharedMemory, "there is none here");
        return None;
    };
    let seen = Seen::open(first.handle(), OPTIONS).unwrap();
    let other = Seen::open(second.handle(), OPTIONS).unwrap();
    Some((Ring::new(first, other), Ring::new(second, seen)))
}

/// The socket, as the ring uses it.
#[derive(Clone, Default)]
struct Socket(Arc<(Mutex<bool>, Condvar)>);

impl Socket {
    fn wake(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }

    fn wait(&self) {
        let mut woken = self.0.1.wait_while(self.0.0.lock().unwrap(), |woken| !*woken).unwrap();
        *woken = false;
    }
}

fn body(number: u64, bytes: &mut Vec<u8>) {
    bytes.clear();
    let length = number * 37 % 301;
    bytes.extend((0..length).map(|at| (number * 13 + at) as u8));
}

/// Sends a message. Polls the ring until there is room.
fn send(ring: &mut RingSide, socket: &Socket, number: u64, bytes: &[u8]) {
    let place = loop {
        match ring.producer.reserve(&ring.theirs, bytes.len()).unwrap() {
            Some(place) => break place,
            None => thread::yield_now(),
        }
    };
    ring.ours.fill(place.body(), bytes);
    let header = Header { id: number, ..Header::new(kind::MESSAGE, bytes.len()) };
    ring.producer.commit(&mut ring.ours, place, &header, 0);
    if ring.producer.publish(&ring.ours, &ring.theirs) {
        socket.wake();
    }
}

/// Receives the next message, by a copy and by blocks, and checks it.
fn receive(ring: &mut RingSide, socket: &Socket, number: u64, expected: &[u8]) {
    let mut looks = 0;
    let record = loop {
        if let Some(record) = ring.consumer.peek(&ring.theirs).unwrap() {
            break *record;
        }
        looks += 1;
        if looks < number % 50 {
            thread::yield_now();
        } else if ring.consumer.fall_asleep(&ring.ours, &ring.theirs) {
            socket.wait();
            ring.consumer.wake_up(&ring.ours);
        }
    };
    assert_eq!((record.header.id, record.header.length as usize), (number, expected.len()));
    let whole = expected.len() - expected.len() % BLOCK_BYTES;
    let append = |bytes: Vec<u8>, block: &[u8; BLOCK_BYTES]| [&bytes[..], block].concat();
    let mut received = ring.theirs.fold_blocks(record.body, whole, Vec::new(), append).unwrap();
    assert_eq!(received, expected[..whole]);
    received.clear();
    ring.theirs.append_to(record.body, expected.len(), &mut received).unwrap();
    assert_eq!(received, expected);
    ring.consumer.release(&ring.ours, record.end);
}

/// Runs in one thread, where nothing waits for the other side.
#[test]
fn each_side_sees_what_the_other_one_has_written() {
    let Some((mut host, mut worker)) = both() else { return };
    let mut bytes = Vec::new();
    for number in 0..100 {
        assert!(worker.consumer.fall_asleep(&worker.ours, &worker.theirs));
        body(number, &mut bytes);
        let place = host.producer.reserve(&host.theirs, bytes.len()).unwrap().unwrap();
        host.ours.fill(place.body(), &bytes);
        let total = (number % 2 == 0).then_some(number << 40);
        let header = Header { id: number, total, ..Header::new(kind::MESSAGE, bytes.len()) };
        host.producer.commit(&mut host.ours, place, &header, number + 7);
        assert!(host.producer.publish(&host.ours, &host.theirs), "the worker sleeps");
        worker.consumer.wake_up(&worker.ours);
        let record = *worker.consumer.peek(&worker.theirs).unwrap().unwrap();
        assert_eq!((record.header, record.after), (header, number + 7));
        let mut received = Vec::new();
        worker.theirs.append_to(record.body, bytes.len(), &mut received).unwrap();
        assert_eq!(received, bytes);
        worker.consumer.release(&worker.ours, record.end);
    }
}

#[test]
fn every_body_is_complete_while_it_is_read() {
    let Some((mut host, mut worker)) = both() else { return };
    let socket = Socket::default();
    let waker = socket.clone();
    let sending = thread::spawn(move || {
        let mut bytes = Vec::new();
        for number in 0..MESSAGES {
            body(number, &mut bytes);
            send(&mut host, &waker, number, &bytes);
        }
    });
    let mut expected = Vec::new();
    for number in 0..MESSAGES {
        body(number, &mut expected);
        receive(&mut worker, &socket, number, &expected);
    }
    sending.join().unwrap();
}

#[test]
fn both_directions_at_once() {
    let Some((mut host, mut worker)) = both() else { return };
    let (to_host, to_worker) = (Socket::default(), Socket::default());
    let (from_worker, from_host) = (to_host.clone(), to_worker.clone());
    let answering = thread::spawn(move || {
        let mut bytes = Vec::new();
        for number in 0..MESSAGES / 4 {
            body(number, &mut bytes);
            receive(&mut worker, &to_worker, number, &bytes);
            send(&mut worker, &from_worker, number, &bytes);
        }
    });
    let mut bytes = Vec::new();
    for number in 0..MESSAGES / 4 {
        body(number, &mut bytes);
        send(&mut host, &from_host, number, &bytes);
        receive(&mut host, &to_host, number, &bytes);
    }
    answering.join().unwrap();
}
