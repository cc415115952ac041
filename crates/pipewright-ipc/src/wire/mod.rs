//! What goes over the wire, byte by byte; `docs/wire.md` says the same to whoever writes another side.

mod header;
mod hello;

pub(crate) use header::{Frame, Header, Invalid};
pub(crate) use hello::{Fields, MOST_HELLO_BYTES};

/// What a frame is.
pub(crate) mod kind {
    /// Who a side is and what it can do: the first frame of each side.
    pub(crate) const HELLO: u8 = 1;
    /// Why a side refuses the other one: the last frame.
    pub(crate) const REJECT: u8 = 2;
    /// A memory object, and what was found in the other side's.
    pub(crate) const MEMORY: u8 = 3;
    /// The host has everything; what comes now are messages.
    pub(crate) const READY: u8 = 4;
    /// More of the message that was begun.
    pub(crate) const PART: u8 = 8;
    /// There is something in the ring. Says nothing else, and has no place in the order.
    pub(crate) const WAKE: u8 = 9;
    /// No more messages come from here.
    pub(crate) const GOODBYE: u8 = 10;
    /// In the ring: the rest of it up to its end is not used.
    pub(crate) const PAD: u8 = 11;
    /// The first of the kinds that begin a message.
    pub(crate) const MESSAGE: u8 = 16;
    /// The last of the kinds that begin a message.
    pub(crate) const LAST_MESSAGE: u8 = 31;
}

/// The version of all this.
pub(crate) const VERSION: u32 = 1;

/// The first line of a hello.
pub(crate) const MAGIC: &str = "pipewright-ipc";
