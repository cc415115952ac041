//! All orders in which halves of frames, records, PADs, wake-ups and the end of the stream can arrive, and what this
//! side decides in between: to wait, or not to.
//!
//! A side that does not wait must have something to do, or it spins; one that waits must have nothing, or it sleeps for
//! ever.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use pipewright_os::base::skipped::{Need, skipped};
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::channel::handle_channel::{self, ChannelEnd};
use pipewright_os::channel::shm::{Seen, ShmOptions, Written};

use super::{Body, Connection, Limits, RawMessage, Reassembly, SharedRing, TURN_FRAMES};
use crate::error::Error;
use crate::options::Options;
use crate::ring::Ring;
use crate::wire::{Header, kind};

/// Small, so that the third record needs a PAD.
const RING: ShmOptions = ShmOptions { bytes: 4096, prefault: false };
const RECORD_BYTES: usize = 1400;

/// One thing that the other side does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Sends the next piece of a frame through the socket: half a header, its rest, half of the body, its rest.
    Piece,
    /// Writes a message to the ring.
    Record,
    /// Writes the first half of a message to the ring, or the second.
    Part,
    /// Sends a WAKE, whether this side sleeps or not.
    Wake,
    /// Ends the stream.
    End,
}

const ACTS: [Act; 5] = [Act::Piece, Act::Record, Act::Part, Act::Wake, Act::End];

/// The other side, which follows the protocol.
struct Sender {
    end: Option<ChannelEnd>,
    ring: SharedRing,
    put: u64,
    /// The number of pieces of the current frame that were sent.
    pieces: usize,
    /// The messages begun so far, in order: true once all of one was sent.
    messages: Vec<bool>,
    /// The place in them of the message that goes through the socket now.
    in_socket: usize,
    /// The place of the message whose second half is missing.
    half: Option<usize>,
    has_to_wake: bool,
}

impl Sender {
    fn act(&mut self, act: Act) {
        match act {
            // Only PART may follow the first half of a message, and a frame is written by one side at a time.
            Act::Piece if self.half.is_none() => self.piece(),
            Act::Record if self.half.is_none() => {
                self.messages.push(true);
                self.record(&Header::new(kind::MESSAGE, RECORD_BYTES));
            }
            Act::Part => match self.half.take() {
                Some(at) => {
                    self.record(&Header::new(kind::PART, RECORD_BYTES));
                    self.messages[at] = true;
                }
                None => {
                    self.half = Some(self.messages.len());
                    self.messages.push(false);
                    let total = Some(2 * RECORD_BYTES as u64);
                    self.record(&Header { total, ..Header::new(kind::MESSAGE, RECORD_BYTES) });
                }
            },
            Act::Wake => self.has_to_wake = true,
            Act::End => self.end = None,
            Act::Piece | Act::Record => {}
        }
        self.wake();
    }

    fn piece(&mut self) {
        let Some(end) = &mut self.end else { return };
        let frame = [&*Header::new(kind::MESSAGE, 8).encode(), &[7; 8]].concat();
        let piece = [0..10, 10..16, 16..20, 20..24][self.pieces].clone();
        if self.pieces == 0 {
            self.put += 1;
            self.in_socket = self.messages.len();
            self.messages.push(false);
        }
        end.send(&[IoSlice::new(&frame[piece])]).unwrap();
        self.pieces = (self.pieces + 1) % 4;
        if self.pieces == 0 {
            self.messages[self.in_socket] = true;
        }
    }

    fn record(&mut self, header: &Header) {
        let place = self.ring.producer.reserve(&self.ring.theirs, RECORD_BYTES).unwrap();
        // The receiver takes records as soon as they are next; behind half a frame of the socket the ring gets full.
        let Some(place) = place else {
            self.end = None;
            return;
        };
        self.ring.producer.commit(&mut self.ring.ours, place, header, self.put);
        self.has_to_wake |= self.ring.producer.publish(&self.ring.ours, &self.ring.theirs);
    }

    /// Sends WAKE between two frames.
    fn wake(&mut self) {
        let Some(end) = self.end.as_mut().filter(|_| self.has_to_wake && self.pieces == 0) else {
            return;
        };
        end.send(&[IoSlice::new(&Header::new(kind::WAKE, 0).encode())]).unwrap();
        self.has_to_wake = false;
    }

    /// Returns the number of messages that can be received now: those before the first that is not complete.
    fn complete(&self) -> usize {
        self.messages.iter().take_while(|is_complete| **is_complete).count()
    }
}

struct Receiver {
    connection: Connection,
    incoming: Reassembly,
    received: usize,
    has_ended: bool,
}

impl Receiver {
    /// Returns a number that grows with everything that is taken.
    fn progress(&self) -> u64 {
        let received = &self.connection.stats.received;
        let left = self.connection.body().map_or(0, |body| body.left);
        (received.inline_frames + received.shared_frames) * 1_000_000
            + self.connection.end.arrived().len() as u64
            - left
            + received.messages * 100_000
    }

    fn next(&mut self) -> Result<Option<RawMessage>, Error> {
        self.incoming.next(&mut self.connection, |_| Ok(()))
    }

    /// Receives until it would sleep.
    fn run(&mut self, slept: Duration) {
        self.connection.wake_up(slept);
        let mut idle = 0;
        while !self.has_ended {
            let before = self.progress();
            match self.next() {
                Ok(Some(_)) => self.received += 1,
                Ok(None) => {
                    idle = if self.progress() == before { idle + 1 } else { 0 };
                    assert!(idle < 3, "it has nothing to do, and does not wait");
                    // The decisions of a pool between two parts, of a channel, and of all before a wait.
                    if self.incoming.is_partial() && self.connection.next_is_in_ring() {
                        continue;
                    }
                    if !self.connection.waits_for_socket() && self.connection.has_records() {
                        continue;
                    }
                    if !self.connection.fall_asleep() {
                        continue;
                    }
                    let mut slots = [Slot::Event(&self.connection.end)];
                    let has_arrived = wait::any(&mut slots, Some(Instant::now())).unwrap() > 0;
                    if !has_arrived {
                        return;
                    }
                    idle = 0;
                    self.connection.wake_up(slept);
                }
                Err(error) => {
                    assert!(error.is_disconnect(), "{error}");
                    self.has_ended = true;
                }
            }
        }
    }
}

fn pair() -> Option<(Sender, Receiver)> {
    let (ours, theirs) = (Written::create(RING).ok()?, Written::create(RING).ok()?);
    let seen = [&ours, &theirs].map(|it| Seen::open(it.handle(), RING).unwrap());
    let [seen_ours, seen_theirs] = seen;
    let (end, other) = handle_channel::pair().unwrap();
    let limits = Limits {
        max_message_bytes: 1 << 20,
        threshold_bytes: 0,
        max_backlog_bytes: 1 << 20,
        takes_handles: false,
    };
    let ring = Ring::new(ours, seen_theirs);
    let connection = Connection::new(end, Some(ring), limits, &Options::default(), None);
    let sender = Sender {
        end: Some(ChannelEnd::from_handle(other).unwrap()),
        ring: Ring::new(theirs, seen_ours),
        put: 0,
        pieces: 0,
        messages: Vec::new(),
        in_socket: 0,
        half: None,
        has_to_wake: false,
    };
    let incoming = Reassembly::default();
    Some((sender, Receiver { connection, incoming, received: 0, has_ended: false }))
}

/// Performs the acts; the receiver runs after each, after every second or at the end.
fn check(acts: &[Act], every: usize, slept: Duration) -> bool {
    let Some((mut sender, mut receiver)) = pair() else { return false };
    for (at, act) in acts.iter().enumerate() {
        sender.act(*act);
        if at % every == every - 1 || at + 1 == acts.len() {
            receiver.run(slept);
            if sender.end.is_some() || !receiver.has_ended {
                let expected = sender.complete();
                assert_eq!(
                    receiver.received, expected,
                    "{acts:?}, run after each {every}, {slept:?}"
                );
            }
        }
    }
    true
}

#[test]
fn a_side_waits_if_and_only_if_it_has_nothing_to_do() {
    let length = 6;
    for number in 0..ACTS.len().pow(length) {
        let digit = |at: u32| ACTS[number / ACTS.len().pow(at) % ACTS.len()];
        let acts: Vec<Act> = (0..length).map(digit).collect();
        // Nothing comes after the end of the stream; a WAKE at the start is as good as anywhere.
        let is_over =
            acts.iter().position(|act| *act == Act::End).is_some_and(|at| at + 1 < acts.len());
        if is_over || acts[0] == Act::Wake {
            continue;
        }
        for (every, slept) in [
            (1, Duration::ZERO),
            (1, Duration::from_millis(1)),
            (2, Duration::ZERO),
            (9, Duration::ZERO),
        ] {
            if !check(&acts, every, slept) {
                return skipped(Need::SharedMemory, "there is none here");
            }
        }
    }
}

#[test]
fn a_turn_ends_however_much_has_arrived() {
    let Some((mut sender, mut receiver)) = pair() else { return };
    let (wake, message) = (Header::new(kind::WAKE, 0), Header::new(kind::MESSAGE, 8));
    let wakes = 10_000;
    let bytes = [wake.encode().repeat(wakes), message.encode().to_vec(), vec![7; 8]].concat();
    sender.end.as_mut().unwrap().send(&[IoSlice::new(&bytes)]).unwrap();
    let mut turns = 1;
    while receiver.next().unwrap().is_none() {
        assert!(receiver.connection.turn_is_over(), "the message has arrived");
        receiver.connection.begin_turn();
        turns += 1;
    }
    assert_eq!(turns, wakes / TURN_FRAMES as usize + 1);
}

#[test]
fn nothing_is_kept_of_a_message_whose_header_is_refused() {
    let Some((mut sender, mut receiver)) = pair() else { return };
    sender.act(Act::Part);
    let refuse = |_: &Body| Err(Error::protocol("no"));
    assert!(receiver.incoming.next(&mut receiver.connection, refuse).is_err());
    assert!(!receiver.incoming.is_partial());
    assert_eq!(receiver.connection.body().unwrap().left, 2 * RECORD_BYTES as u64);
}
