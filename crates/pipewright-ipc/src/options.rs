//! The options of a connection, and its statistics.

use std::time::Duration;

use pipewright_os::base::test_hooks;

/// The options of one side of a connection. If [`max_message_bytes`](Self::max_message_bytes) differs, the smaller one
/// counts. Shared memory is used only if both sides allow it.
///
/// ```
/// use pipewright_ipc::{Options, SharedMemory};
/// let options = Options { shared_memory: SharedMemory::Off, ..Options::default() };
/// assert_eq!(options.threshold_bytes, 4096);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name of the application. If the sides differ, the connection is [refused](crate::ErrorKind::Refused).
    /// Default: empty.
    pub app: String,
    /// The build of the application. It has to be the same on both sides too. Default: empty.
    pub build: String,
    /// Any other value that has to be the same on both sides, such as a session or a directory.
    /// Default: empty.
    pub salt: String,
    /// The identity of a typed service, which has to be the same on both sides too: its name, its version, and a hash
    /// of its methods. The clients and the `serve` of the attribute `service` (feature `service`) set it. Default:
    /// empty, no typed service.
    pub service: String,
    /// The longest message, in bytes. Default: 256 MiB.
    pub max_message_bytes: u64,
    /// The length in bytes below which a message to a sleeping receiver goes through the socket, which also wakes the
    /// receiver. Default: 4 KiB.
    pub threshold_bytes: usize,
    /// The size of the ring buffer in shared memory that this side fills, in bytes: from 64 KiB to
    /// 64 MiB, rounded up to a power of two. Default: 2 MiB.
    pub ring_bytes: usize,
    /// The use of shared memory. Default: [`SharedMemory::Auto`].
    pub shared_memory: SharedMemory,
    /// Maps the pages of shared memory when the connection is made. Otherwise the first use of each page costs a
    /// page fault. Default: `true`.
    pub prefault: bool,
    /// The longest time that a call polls shared memory (spins) before it sleeps. The actual time adapts to the success
    /// of earlier spins, down to zero. Default: 50 µs. Zero: never spin.
    pub spin: Duration,
    /// While a call waits for room to send, it keeps in memory what the other side sends: at most this many bytes, in
    /// addition to those in shared memory. More is a [`Backlog`](crate::ErrorKind::Backlog) error. Default: 512 MiB.
    pub max_backlog_bytes: usize,
    /// The deadline of each step of the handshake. Default: 10 s.
    pub handshake_timeout: Duration,
    /// The longest wait of a call on the channel; see [`Channel::set_timeout`](crate::Channel::set_timeout).
    /// Default: `None`, until the other side ends or closes the connection.
    pub timeout: Option<Duration>,
}

/// The use of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum SharedMemory {
    /// Use shared memory if both sides have it. Otherwise everything goes through the socket, and
    /// [`Stats`] contains the reason.
    #[default]
    Auto,
    /// Refuse a connection without shared memory.
    Required,
    /// Never use shared memory.
    Off,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            app: String::new(),
            build: String::new(),
            salt: String::new(),
            service: String::new(),
            max_message_bytes: 256 << 20,
            threshold_bytes: 4 << 10,
            ring_bytes: 2 << 20,
            shared_memory: SharedMemory::Auto,
            prefault: true,
            spin: Duration::from_micros(50),
            max_backlog_bytes: 512 << 20,
            handshake_timeout: Duration::from_secs(10) * test_hooks::slowness(),
            timeout: None,
        }
    }
}

/// The allowed sizes of a ring.
pub(crate) const MIN_RING_BYTES: usize = 64 << 10;
pub(crate) const MAX_RING_BYTES: usize = 64 << 20;

/// The longest message that the protocol allows: the length of a frame has 32 bits.
pub(crate) const MAX_MESSAGE_BYTES: u64 = u32::MAX as u64;

impl Options {
    /// Returns the actual size of the ring.
    pub(crate) fn ring_size(&self) -> usize {
        let wanted = self.ring_bytes.clamp(MIN_RING_BYTES, MAX_RING_BYTES);
        wanted.next_power_of_two()
    }
}

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
