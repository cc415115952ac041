//! What a connection is to be like.

use std::time::Duration;

/// What a connection is to be like, as one side wants it. Where the two sides differ the smaller figure
/// counts, and shared memory is used only if both allow it.
///
/// ```
/// use pipewright_ipc::{Options, SharedMemory};
/// let options = Options { shared_memory: SharedMemory::Off, ..Options::default() };
/// assert_eq!(options.threshold_bytes, 4096);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which application this is; both sides have to say the same.
    pub app: String,
    /// Which build of it; both sides have to say the same.
    pub build: String,
    /// Anything else that both sides have to say the same of: a session, a folder.
    pub salt: String,
    /// The longest message, in bytes. 256 MiB.
    pub max_message_bytes: u64,
    /// A message below this goes through the socket when the other side sleeps, and wakes it by that;
    /// in bytes. 4 KiB.
    pub threshold_bytes: usize,
    /// How large the ring is that we fill, in bytes: a power of two from 64 KiB to 64 MiB. 2 MiB.
    pub ring_bytes: usize,
    /// Whether messages go through shared memory.
    pub shared_memory: SharedMemory,
    /// Whether the pages of shared memory are mapped when the connection is made. Else each costs a
    /// fault when it is first used. `true`.
    pub prefault: bool,
    /// The longest time that is spent looking at the ring before going to sleep. What is spent adapts to
    /// what it brought, down to nothing. 50 µs; zero: never.
    pub spin: Duration,
    /// How much is kept in memory of what the other side sends while it does not read, in bytes, beside
    /// what is in shared memory. More is an error. 512 MiB.
    pub max_backlog_bytes: usize,
    /// How long each step of making the connection may take. 10 s.
    pub handshake_timeout: Duration,
    /// How long a call on the channel may wait; see [`Channel::set_timeout`](crate::Channel::set_timeout).
    /// `None`: for as long as the other side is there.
    pub timeout: Option<Duration>,
}

/// Whether messages go through shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum SharedMemory {
    /// Where it can be had on both sides. Else everything goes through the socket, and
    /// [`Stats`](crate::Stats) tells why.
    #[default]
    Auto,
    /// Or there is no connection.
    Required,
    /// Never.
    Off,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            app: String::new(),
            build: String::new(),
            salt: String::new(),
            max_message_bytes: 256 << 20,
            threshold_bytes: 4 << 10,
            ring_bytes: 2 << 20,
            shared_memory: SharedMemory::Auto,
            prefault: true,
            spin: Duration::from_micros(50),
            max_backlog_bytes: 512 << 20,
            handshake_timeout: Duration::from_secs(10),
            timeout: None,
        }
    }
}

/// The sizes that a ring may have.
pub(crate) const LEAST_RING_BYTES: usize = 64 << 10;
pub(crate) const MOST_RING_BYTES: usize = 64 << 20;

/// The longest message that there can be at all: what the length of a frame can say.
pub(crate) const MOST_MESSAGE_BYTES: u64 = u32::MAX as u64;

impl Options {
    /// The size of the ring as it is made.
    pub(crate) fn ring_size(&self) -> usize {
        let wanted = self.ring_bytes.clamp(LEAST_RING_BYTES, MOST_RING_BYTES);
        wanted.next_power_of_two()
    }
}
