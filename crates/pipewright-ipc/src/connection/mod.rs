//! One connection: the socket and the ring behind one order of frames. Nothing here waits.
//!
//! A frame goes through the ring or through the socket, and the receiver takes frames in the order in which they were
//! sent. Each record of the ring has the number of frames that went through the socket before it: it is next once this
//! side has taken as many. A frame of the socket is next if the ring has no such record: any record that was sent
//! before the frame was in the ring before the frame was in the socket.
//!
//! | file | contents |
//! |---|---|
//! | `sending.rs` | [`Sending`]: a message, split into frames; each frame through the ring or the socket |
//! | `receiving.rs` | [`Receiving`]: the next frame in order, the message that frames make up, and where its bytes go |
//! | this file | what both need: [`Limits`], the turn, [`Spin`], a flush, a wait, GOODBYE |
//!
//! Channels and pools drive the same operations: each step does what is possible now and returns a [`StepResult`].
//! [`StepResult::Blocked`] has what to wait for before the next step, unless the [turn is
//! over](Connection::turn_is_over).

mod receiving;
mod sending;

use std::time::{Duration, Instant};
use std::{hint, io};

use pipewright_os::base::cpu;
use pipewright_os::channel::handle_channel::ChannelEnd;
use pipewright_os::channel::shm::{Seen, Written};

use crate::error::{Error, ErrorKind};
use crate::options::{Options, Stats};
use crate::ring::Ring;
use crate::wire::{Header, kind};
use receiving::Receiving;
use sending::FramesOut;

pub(crate) use receiving::{Body, Discard, Fill, Fold, RawMessage, Reassembly};
pub(crate) use sending::{FRAME_BYTES, Filling, Payload, Sending};

/// The ring between two processes.
pub(crate) type SharedRing = Ring<Written, Seen>;

/// The limits of a connection, as the two sides agreed on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The longest message.
    pub(crate) max_message_bytes: u64,
    /// The length below which a message to a sleeping reader goes through the socket and wakes it.
    pub(crate) threshold_bytes: usize,
    /// The most bytes kept of what arrives while this side waits for room.
    pub(crate) max_backlog_bytes: usize,
    /// The other side takes handles.
    pub(crate) takes_handles: bool,
}

/// The result of a step that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepResult {
    /// The operation is complete.
    Done,
    /// The operation goes on when this has happened.
    Blocked(Want),
}

/// An event to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// The arrival of a message, or of more of one.
    Message,
    /// Room in the socket.
    Room,
}

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) end: ChannelEnd,
    pub(crate) ring: Option<SharedRing>,
    pub(crate) limits: Limits,
    outgoing: FramesOut,
    receiving: Receiving,
    room_spin: Spin,
    pub(crate) stats: Stats,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if cfg!(feature = "tracing") {
            crate::trace::connection_ended(&self.stats());
        }
    }
}

impl Connection {
    pub(crate) fn new(
        end: ChannelEnd,
        ring: Option<SharedRing>,
        limits: Limits,
        options: &Options,
        fallback: Option<String>,
    ) -> Connection {
        let stats = Stats { shared_memory: ring.is_some(), fallback, ..Stats::default() };
        Connection {
            end,
            ring,
            limits,
            outgoing: FramesOut::default(),
            receiving: Receiving::default(),
            // Room appears after one copy by the other side. An answer takes longer, so its bound is higher.
            room_spin: Spin::new(options.spin.min(Duration::from_micros(30))),
            stats,
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.sent.system_calls = self.end.calls().send;
        stats.received.system_calls = self.end.calls().receive;
        let high_water = self.ring.as_ref().map_or(0, |ring| ring.producer.high_water());
        stats.sent.ring_high_water_bytes = high_water;
        stats
    }

    /// Returns an error if no message of this length may be sent.
    #[inline]
    pub(crate) fn check_may_send(&self, bytes: u64) -> Result<(), Error> {
        if self.outgoing.cut_off {
            return Err(Error::new(ErrorKind::CutOff));
        }
        if self.outgoing.closed {
            return Err(Error::new(ErrorKind::Closed));
        }
        self.check_length(bytes)
    }

    /// Returns an error if a message of this length exceeds the agreed maximum.
    #[inline]
    pub(crate) fn check_length(&self, bytes: u64) -> Result<(), Error> {
        let most = self.limits.max_message_bytes;
        if bytes > most {
            return Err(Error::new(ErrorKind::TooLong { bytes, most }));
        }
        Ok(())
    }

    /// Returns an error if the other side takes no handles.
    pub(crate) fn check_takes_handles(&self) -> Result<(), Error> {
        if self.limits.takes_handles {
            return Ok(());
        }
        let message = "the other side takes no handles";
        Err(io::Error::new(io::ErrorKind::Unsupported, message).into())
    }

    /// Forbids further messages: the other side could not tell a new one from the rest of this one.
    pub(crate) fn set_cut_off(&mut self, cut_off: bool) {
        self.outgoing.cut_off = cut_off;
    }

    /// Publishes all records and flushes the bytes that the system has not taken yet.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<StepResult, Error> {
        self.publish()?;
        self.flush_socket()
    }

    /// Like [`flush`](Self::flush), and also handles writes that the system has completed meanwhile (Windows): their
    /// errors, and the handles that they passed.
    #[inline]
    pub(crate) fn flush_and_settle(&mut self) -> Result<StepResult, Error> {
        self.publish()?;
        let is_done = self.end.flush()? == 0;
        self.end_stream_after_goodbye();
        Ok(if is_done { StepResult::Done } else { StepResult::Blocked(Want::Room) })
    }

    /// Returns true if the last step ended because the side has done enough at once. Then nothing has to be waited for:
    /// the caller looks at its deadline, [begins the next turn](Self::begin_turn) and goes on.
    #[inline]
    pub(crate) fn turn_is_over(&self) -> bool {
        self.receiving.turn.is_over() || self.outgoing.turn.is_over()
    }

    /// Begins a turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        (self.receiving.turn, self.outgoing.turn) = Default::default();
    }

    /// [Flushes](Self::flush_and_settle) before something is received. It is no error that the other side receives
    /// nothing more: what it has sent comes first, and then the end of the stream.
    #[inline]
    pub(crate) fn flush_before_receiving(&mut self) -> Result<(), Error> {
        match self.flush_and_settle() {
            Err(error) if error.is_disconnect() => self.outgoing.broken = true,
            flushed => drop(flushed?),
        }
        Ok(())
    }

    /// Flushes the bytes that the system has not taken yet.
    #[inline]
    fn flush_socket(&mut self) -> Result<StepResult, Error> {
        if self.unsent() == 0 || self.end.flush()? == 0 {
            self.end_stream_after_goodbye();
            return Ok(StepResult::Done);
        }
        Ok(StepResult::Blocked(Want::Room))
    }

    /// Ends the outgoing direction of the socket once all of GOODBYE was sent. The other side may wait for that end.
    #[inline]
    fn end_stream_after_goodbye(&mut self) {
        if self.outgoing.closed && !self.outgoing.ended && self.unsent() == 0 {
            self.outgoing.ended = true;
            self.end.end_sending();
        }
    }

    /// Sends GOODBYE, once, unless a message was cut off.
    pub(crate) fn send_goodbye(&mut self) -> Result<(), Error> {
        if !self.outgoing.closed && !self.outgoing.cut_off {
            self.outgoing.closed = true;
            self.send_frame(&Header::new(kind::GOODBYE, 0), &[])?;
        }
        Ok(())
    }

    /// Announces that this side is about to wait for the socket. Returns false if there is something to receive
    /// already.
    ///
    /// A record that comes after a frame of the socket needs no announcement: that frame ends the wait.
    #[inline]
    pub(crate) fn fall_asleep(&mut self) -> bool {
        if self.waits_for_socket() {
            return true;
        }
        let Some(ring) = &mut self.ring else { return true };
        ring.consumer.fall_asleep(&ring.ours, &ring.theirs)
    }

    /// Announces the end of a wait that took this long.
    #[inline]
    pub(crate) fn wake_up(&mut self, slept: Duration) {
        if let Some(ring) = &mut self.ring {
            ring.consumer.wake_up(&ring.ours);
        }
        self.note_sleep(slept);
    }
}

// A turn: the work that one side does for the other before it looks at its deadlines and at its other connections.
// Everything that a turn counts costs the other side less than this side: a record whose body it never wrote, a part of
// one byte, a WAKE. Without a bound, a side that never stops sending them would hold this one forever.

/// The most bytes of bodies in each direction: about a millisecond.
const TURN_BYTES: u64 = 4 << 20;

/// The most frames in each direction, including WAKE.
const TURN_FRAMES: u32 = 4096;

/// The most spins for the rest of a message: as many as a turn of long frames needs.
const TURN_SPINS: u32 = 64;

/// The rest of a turn in one direction.
#[derive(Debug)]
struct Turn {
    frames: u32,
    bytes: u64,
    spins: u32,
}

impl Default for Turn {
    fn default() -> Turn {
        Turn { frames: TURN_FRAMES, bytes: TURN_BYTES, spins: TURN_SPINS }
    }
}

impl Turn {
    #[inline]
    fn is_over(&self) -> bool {
        self.frames == 0 || self.bytes == 0
    }

    #[inline]
    fn count_frame(&mut self) {
        self.frames = self.frames.saturating_sub(1);
    }

    #[inline]
    fn count_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }

    /// Returns the number of bytes that may still be taken, at most this one.
    #[inline]
    fn limit(&self, bytes: usize) -> usize {
        usize::try_from(self.bytes).map_or(bytes, |left| left.min(bytes))
    }

    /// Returns true if there may be one more spin.
    fn may_spin(&mut self) -> bool {
        self.spins = self.spins.saturating_sub(1);
        self.spins > 0 && !self.is_over()
    }
}

// A spin for a bounded time before a sleep, which adapts to the success of earlier spins.

/// An adaptive spin with a bounded duration.
///
/// Each success earns credit, each failure costs some. Without credit there is no spin, except an occasional try while
/// waits are short: each failed try doubles the number of waits until the next. So spins cost next to nothing on a busy
/// machine, where the other side cannot run meanwhile, and two sides that wait only because the other one sleeps return
/// to spinning.
#[derive(Debug)]
pub(crate) struct Spin {
    most: Duration,
    credit: u32,
    /// The number of short waits until the next try.
    until_try: u32,
    /// The initial value of `until_try` after the previous failure.
    pause: u32,
}

const MAX_CREDIT: u32 = 8;
const FIRST_PAUSE: u32 = 8;
const LAST_PAUSE: u32 = 1024;

/// The longest wait that counts as short, as a multiple of the budget. Such a wait contains two wake-ups, which a spin
/// saves.
const SHORT_WAIT: u32 = 4;

/// The number of checks of the condition between two reads of the clock.
const CHECKS_PER_CLOCK: u32 = 32;

impl Spin {
    pub(crate) fn new(most: Duration) -> Spin {
        // On one processor the other side cannot run during a spin. (The affinity of this process does not matter: the
        // other process may have another one.)
        let most = if cpu::online() < 2 { Duration::ZERO } else { most };
        Spin { most, credit: MAX_CREDIT / 2, until_try: FIRST_PAUSE, pause: FIRST_PAUSE }
    }

    /// Spins until the condition is true or the budget is used up. Returns the duration as of the last read of
    /// the clock: a condition that comes true soon does not wait for another read.
    #[inline]
    pub(crate) fn until(&mut self, mut condition: impl FnMut() -> bool) -> Duration {
        let mut spun = Duration::ZERO;
        if self.credit == 0 || self.most.is_zero() {
            return spun;
        }
        let mut start = None;
        loop {
            for _ in 0..CHECKS_PER_CLOCK {
                if condition() {
                    self.credit = (self.credit + 2).min(MAX_CREDIT);
                    self.pause = FIRST_PAUSE;
                    return spun;
                }
                hint::spin_loop();
            }
            spun = start.get_or_insert_with(Instant::now).elapsed();
            if spun >= self.most {
                self.note_failure();
                return spun;
            }
        }
    }

    fn note_failure(&mut self) {
        self.credit -= 1;
        if self.credit == 0 {
            self.pause = (self.pause * 2).min(LAST_PAUSE);
            self.until_try = self.pause;
        }
    }

    /// Records how long the wait after the spin slept.
    #[inline]
    pub(crate) fn note_sleep(&mut self, slept: Duration) {
        if slept > self.most * SHORT_WAIT {
            // Too long for any spin: the next one would fail as well.
            self.credit = self.credit.saturating_sub(1);
            return;
        }
        if self.credit == 0 {
            self.until_try = self.until_try.saturating_sub(1);
            if self.until_try == 0 {
                self.credit = 1;
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod orders;

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_micros(5);

    /// Returns a spin that does not depend on the number of processors.
    fn spin(most: Duration) -> Spin {
        Spin { most, ..Spin::new(Duration::ZERO) }
    }

    /// Returns how many of these waits began with a spin, which always fails.
    fn tries(spin: &mut Spin, waits: u32, slept: Duration) -> u32 {
        let mut tries = 0;
        for _ in 0..waits {
            let mut spun = false;
            spin.until(|| {
                spun = true;
                false
            });
            tries += u32::from(spun);
            spin.note_sleep(slept);
        }
        tries
    }

    #[test]
    fn spin_that_never_succeeds_is_given_up_and_retried_rarely() {
        let mut spin = spin(BUDGET);
        let first = tries(&mut spin, 10, BUDGET);
        assert!(first <= MAX_CREDIT, "{first}");
        let then = tries(&mut spin, 10_000, BUDGET);
        assert!((5..40).contains(&then), "{then}");
        // Every spin succeeds from now on: after the next try each wait begins with one.
        let mut found = 0;
        for _ in 0..3_000 {
            spin.until(|| {
                found += 1;
                true
            });
            spin.note_sleep(BUDGET);
        }
        assert!(found > 1_000, "{found}");
    }

    #[test]
    fn long_waits_end_spinning() {
        let mut spin = spin(BUDGET);
        tries(&mut spin, 10, BUDGET * 1_000);
        assert_eq!(tries(&mut spin, 10_000, BUDGET * 1_000), 0);
    }

    #[test]
    fn zero_budget_never_spins() {
        let mut spin = spin(Duration::ZERO);
        for _ in 0..1_000 {
            assert_eq!(spin.until(|| unreachable!()), Duration::ZERO);
            spin.note_sleep(BUDGET);
        }
    }
}
