//! The bytes on the wire. `docs/wire.md` specifies them for other implementations.

mod header;
mod hello;

pub(crate) use header::{Frame, Header, Invalid};
pub(crate) use hello::{HelloFields, MAX_HELLO_BYTES};

/// The kinds of frames.
pub(crate) mod kind {
    /// Identity and capabilities of a side: its first frame.
    pub(crate) const HELLO: u8 = 1;
    /// The reason of a rejection: the last frame.
    pub(crate) const REJECT: u8 = 2;
    /// A memory object, and the number found in that of the other side.
    pub(crate) const MEMORY: u8 = 3;
    /// The end of the handshake, from the host. Messages follow.
    pub(crate) const READY: u8 = 4;
    /// The next part of a message.
    pub(crate) const PART: u8 = 8;
    /// A wake-up: the ring has records. Does not count for the order.
    pub(crate) const WAKE: u8 = 9;
    /// The end of this side's messages.
    pub(crate) const GOODBYE: u8 = 10;
    /// Ring only: unused space up to the end of the ring.
    pub(crate) const PAD: u8 = 11;
    /// A message outside of calls. The first of the kinds that start a message.
    pub(crate) const MESSAGE: u8 = 16;
    /// Host: a request. Its answers have the same id.
    pub(crate) const CALL: u8 = 17;
    /// Worker: the reply, the last message of its call.
    pub(crate) const REPLY: u8 = 18;
    /// Worker: an error instead of a reply, the last message of its call.
    pub(crate) const FAILED: u8 = 19;
    /// Host: cancels the call.
    pub(crate) const CANCEL: u8 = 20;
    /// Worker: an item before the reply. Host: an item after the request.
    pub(crate) const ITEM: u8 = 21;
    /// The number of further items that the other side may send.
    pub(crate) const CREDIT: u8 = 22;
    /// Worker: a question about its call.
    pub(crate) const ASK: u8 = 23;
    /// Host: the answer to a question.
    pub(crate) const ANSWER: u8 = 24;
    /// Host: the reason why there is no answer.
    pub(crate) const DECLINED: u8 = 25;
    /// Host: resets the worker to the state right after its start.
    pub(crate) const RESET: u8 = 26;
    /// Worker: the reset is done.
    pub(crate) const RESET_DONE: u8 = 27;
    /// Host: a request that items follow.
    pub(crate) const OPEN_CALL: u8 = 28;
    /// Host: the end of the items after a request.
    pub(crate) const ITEMS_END: u8 = 29;
    /// The last of the kinds that start a message.
    pub(crate) const LAST_MESSAGE: u8 = 31;
}

/// The most calls that one worker may have at a time.
pub(crate) const MAX_CALLS: usize = 1024;

/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;

/// The first line of HELLO.
pub(crate) const MAGIC: &str = "pipewright-ipc";
