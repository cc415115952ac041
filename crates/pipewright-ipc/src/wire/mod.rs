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
    /// The first of the kinds that begin a message: one that is no part of a call.
    pub(crate) const MESSAGE: u8 = 16;
    /// Host: a question that is to be answered under its id.
    pub(crate) const CALL: u8 = 17;
    /// Worker: the answer, the last of its call.
    pub(crate) const REPLY: u8 = 18;
    /// Worker: why there is no answer, the last of its call.
    pub(crate) const FAILED: u8 = 19;
    /// Host: nobody wants the answer any more.
    pub(crate) const CANCEL: u8 = 20;
    /// Worker: a piece of the answer, of which more come.
    pub(crate) const ITEM: u8 = 21;
    /// Host: so many more pieces may be sent.
    pub(crate) const CREDIT: u8 = 22;
    /// Worker: a question about the call that it has.
    pub(crate) const ASK: u8 = 23;
    /// Host: the answer to that.
    pub(crate) const ANSWER: u8 = 24;
    /// Host: why there is none.
    pub(crate) const DECLINED: u8 = 25;
    /// Host: be as if you had just been started.
    pub(crate) const RESET: u8 = 26;
    /// Worker: so it is.
    pub(crate) const RESET_DONE: u8 = 27;
    /// The last of the kinds that begin a message.
    pub(crate) const LAST_MESSAGE: u8 = 31;
}

/// The version of all this.
pub(crate) const VERSION: u32 = 1;

/// The first line of a hello.
pub(crate) const MAGIC: &str = "pipewright-ipc";
