//! The ring under loom, which runs it in every order that two processors may see.
//!
//! Relaxed atomic numbers model the data: a reader that comes too early sees old ones, and the test gets a wrong
//! message. A flag and a condition variable model the socket: a lost wake-up is a deadlock, which loom reports.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p pipewright-ipc --release --lib ring::model`

use std::io;

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{OwnMemory, PeerMemory, Ring};
use crate::wire::{Header, kind};

/// Room for four records.
const BYTES: usize = 256;

/// The object of one side.
struct Object {
    words: [AtomicU64; 3],
    data: Vec<AtomicU64>,
}

impl Object {
    fn new() -> Arc<Object> {
        let data = (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Object { words: [0; 3].map(AtomicU64::new), data })
    }
}

struct Writes(Arc<Object>);
struct Sees(Arc<Object>);

impl OwnMemory for Writes {
    fn bytes(&self) -> usize {
        BYTES
    }

    fn publish(&self, word: usize, value: u64) {
        self.0.words[word].store(value, Ordering::Release);
    }

    fn fill(&mut self, at: usize, bytes: &[u8]) {
        for (place, number) in self.0.data[at / 8..].iter().zip(bytes.chunks_exact(8)) {
            let number = u64::from_le_bytes(number.try_into().unwrap());
            place.store(number, Ordering::Relaxed);
        }
    }

    fn announce(&self, word: usize, value: u64) {
        self.publish(word, value);
        fence(Ordering::SeqCst);
    }
}

impl PeerMemory for Sees {
    fn bytes(&self) -> usize {
        BYTES
    }

    fn word(&self, word: usize) -> u64 {
        self.0.words[word].load(Ordering::Acquire)
    }

    fn word_in_order(&self, word: usize) -> u64 {
        self.word(word)
    }

    fn numbers(&self, at: usize) -> io::Result<[u64; 4]> {
        let mut numbers = [0; 4];
        for (number, place) in numbers.iter_mut().zip(&self.0.data[at / 8..]) {
            *number = place.load(Ordering::Relaxed);
        }
        Ok(numbers)
    }
}

/// The socket, as the ring uses it: a wake-up and a wait.
#[derive(Clone)]
struct Socket(Arc<(Mutex<bool>, Condvar)>);

impl Socket {
    fn new() -> Socket {
        Socket(Arc::new((Mutex::new(false), Condvar::new())))
    }

    fn wake(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }

    fn wait(&self) {
        let mut woken = self.0.0.lock().unwrap();
        while !*woken {
            woken = self.0.1.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// Both sides of one connection, each with its own object and a view of the other.
fn both() -> (Ring<Writes, Sees>, Ring<Writes, Sees>) {
    let (a, b) = (Object::new(), Object::new());
    (Ring::new(Writes(Arc::clone(&a)), Sees(Arc::clone(&b))), Ring::new(Writes(b), Sees(a)))
}

/// Sends a message with this number. Returns false if there is no room.
fn send(ring: &mut Ring<Writes, Sees>, socket: &Socket, number: u64) -> bool {
    let Some(place) = ring.producer.reserve(&ring.theirs, 8).unwrap() else { return false };
    ring.ours.fill(place.body(), &(number * 7).to_le_bytes());
    let header = Header { id: number, ..Header::new(kind::MESSAGE, 8) };
    ring.producer.commit(&mut ring.ours, place, &header, number + 100);
    if ring.producer.publish(&ring.ours, &ring.theirs) {
        socket.wake();
    }
    true
}

/// Receives the next message, which has to have this number. Sleeps until it arrives.
fn receive(ring: &mut Ring<Writes, Sees>, socket: &Socket, number: u64) {
    loop {
        if let Some(record) = ring.consumer.peek(&ring.theirs).unwrap() {
            let body = ring.theirs.0.data[record.body / 8].load(Ordering::Relaxed);
            assert_eq!((record.header.id, record.after, body), (number, number + 100, number * 7));
            let end = record.end;
            return ring.consumer.release(&ring.ours, end);
        }
        if ring.consumer.fall_asleep(&ring.ours, &ring.theirs) {
            socket.wait();
            ring.consumer.wake_up(&ring.ours);
        }
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Interactions of two threads show with few preemptions. Without a bound the runs do not end.
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn every_message_arrives_whole_and_no_wake_up_is_lost() {
    model(|| {
        let (mut host, mut worker) = both();
        let socket = Socket::new();
        let waker = socket.clone();
        let sender =
            thread::spawn(move || (0..3).for_each(|it| assert!(send(&mut host, &waker, it))));
        (0..3).for_each(|number| receive(&mut worker, &socket, number));
        sender.join().unwrap();
    });
}

#[test]
fn place_is_not_reused_before_it_was_read() {
    model(|| {
        let (mut host, mut worker) = both();
        let socket = Socket::new();
        let waker = socket.clone();
        // Full at the start, so that the next message has to wait for a place.
        (0..4).for_each(|number| assert!(send(&mut host, &socket, number)));
        assert!(!send(&mut host, &socket, 4));
        let sender = thread::spawn(move || {
            while !send(&mut host, &waker, 4) {
                thread::yield_now();
            }
        });
        (0..5).for_each(|number| receive(&mut worker, &socket, number));
        sender.join().unwrap();
    });
}

#[test]
fn question_and_answer_never_deadlock() {
    model(|| {
        let (mut host, mut worker) = both();
        let (to_host, to_worker) = (Socket::new(), Socket::new());
        let (from_worker, from_host) = (to_host.clone(), to_worker.clone());
        let answering = thread::spawn(move || {
            receive(&mut worker, &to_worker, 1);
            assert!(send(&mut worker, &from_worker, 2));
        });
        assert!(send(&mut host, &from_host, 1));
        receive(&mut host, &to_host, 2);
        answering.join().unwrap();
    });
}
