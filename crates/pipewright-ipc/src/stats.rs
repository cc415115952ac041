//! Statistics of a connection.

use std::time::Duration;

/// Statistics of a connection so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// The messages that this side sent.
    pub sent: Direction,
    /// The messages that this side received.
    pub received: Direction,
    /// True if shared memory is in use.
    pub shared_memory: bool,
    /// The reason why shared memory is not in use although this side's options allow it.
    pub fallback: Option<String>,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Direction {
    /// The number of messages.
    pub messages: u64,
    /// The bytes of their bodies.
    pub bytes: u64,
    /// The number of frames (parts of a message) whose body went through the socket.
    pub inline_frames: u64,
    /// The bytes of these bodies.
    pub inline_bytes: u64,
    /// The number of frames whose body went through shared memory.
    pub shared_frames: u64,
    /// The bytes of these bodies.
    pub shared_bytes: u64,
    /// The number of frames sent through the socket because the ring had no room. Sender only.
    pub spilled_frames: u64,
    /// The number of messages of more than one frame (64 KiB): the receiver reads the first frame while the sender
    /// writes the last.
    pub progressive_messages: u64,
    /// The most bytes seen in the ring at one time. Sender only.
    pub ring_high_water_bytes: u64,
    /// The number of times that this side had to wake the other side. Sender only.
    pub wakes: u64,
    /// Time spent waiting: for room (sender), for a message (receiver).
    pub blocked: Duration,
    /// Time spent spinning on the ring, included in `blocked`.
    pub spun: Duration,
    /// The number of system calls that moved bytes.
    pub system_calls: u64,
}
