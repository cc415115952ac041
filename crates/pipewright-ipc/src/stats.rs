//! What went over a connection, and how.

use std::time::Duration;

/// What went over a connection so far, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// What this side sent.
    pub sent: Direction,
    /// What this side received.
    pub received: Direction,
    /// Whether shared memory is used.
    pub shared_memory: bool,
    /// Why it is not used, though it was not switched off.
    pub fallback: Option<String>,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Direction {
    /// Messages.
    pub messages: u64,
    /// Their bodies, in bytes.
    pub bytes: u64,
    /// Frames whose body went through the socket.
    pub inline_frames: u64,
    /// The bytes of these.
    pub inline_bytes: u64,
    /// Frames whose body went through shared memory.
    pub shared_frames: u64,
    /// The bytes of these.
    pub shared_bytes: u64,
    /// Of the frames through the socket: those for which there was no room in the ring. Sender only.
    pub spilled_frames: u64,
    /// Messages of several frames: the first is read while the last is being written.
    pub progressive_messages: u64,
    /// The most that was found in the ring at one time, in bytes. Sender only.
    pub ring_high_water_bytes: u64,
    /// How often the other side had to be woken because it slept. Sender only.
    pub wakes: u64,
    /// Time spent waiting for the other side: for room (sender), for a message (receiver).
    pub blocked: Duration,
    /// Of that, time spent looking at the ring.
    pub spun: Duration,
    /// Calls of the system that moved bytes.
    pub system_calls: u64,
}
