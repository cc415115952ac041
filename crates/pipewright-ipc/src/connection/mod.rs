//! One connection: the socket and the ring behind one order of frames. Nothing here waits.
//!
//! A frame goes through the ring or through the socket, and the receiver takes frames in the order in which they were
//! sent. Each record of the ring says how many frames went through the socket before it, so a record is next when that
//! many were taken. A frame of the socket is next if the ring has no such record: any record that was sent before the
//! frame was in the ring before the frame was in the socket.
//!
//! | file | contents |
//! |---|---|
//! | `sending.rs` | [`Sending`]: a message, split into frames |
//! | `filling.rs` | [`Filling`]: a message that is made while it is sent |
//! | `frames_out.rs` | a frame, through the ring or the socket |
//! | `receiving.rs` | [`Receiving`]: the next frame in order, and the message that frames make up |
//! | `reassembly.rs` | whole messages, for a loop over many connections |
//! | `sink.rs` | destinations of the bytes that arrive |
//! | `spin.rs` | a bounded spin before a wait |
//! | `turn.rs` | the work before the next look at the deadlines |
//!
//! Channels and pools drive the same operations: each step does what is possible now and returns a [`StepResult`].
//! [`StepResult::Blocked`] says what to wait for before the next step, unless the [turn is over](Connection::turn_is_over).

mod filling;
mod frames_out;
#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod orders;
mod reassembly;
mod receiving;
mod sending;
mod sink;
mod spin;
mod turn;

use std::io;
use std::time::Duration;

use pipewright_os::channel::handle_channel::ChannelEnd;
use pipewright_os::channel::shm::{Seen, Written};

use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::ring::Ring;
use crate::stats::Stats;
use crate::wire::{Header, kind};
pub(crate) use filling::Filling;
use frames_out::FramesOut;
pub(crate) use reassembly::{RawMessage, Reassembly};
pub(crate) use receiving::Body;
use receiving::Receiving;
pub(crate) use sending::{FRAME_BYTES, Payload, Sending};
pub(crate) use sink::{Discard, Fill, Fold};
pub(crate) use spin::Spin;

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

/// One connection.
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

    /// [Flushes](Self::flush_and_settle) before something is received. It is no error that the other side receives nothing
    /// more: what it has sent comes first, and then the end of the stream.
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

    /// Announces that this side is about to wait for the socket. Returns false if there is something to receive already.
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
