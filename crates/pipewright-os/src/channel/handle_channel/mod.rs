//! A two-way stream of bytes between two processes, which carries handles too and tells when the other
//! side is gone.
//!
//! The shape is completion, as in [`mux`](crate::base::wait): bytes that have arrived stand in the end's own
//! buffer ([`End::arrived`]), bytes that are to go are handed over ([`End::send`]), and what the system
//! does not take at once is kept by the end. So nothing here ever blocks, and the buffers that a system
//! may be working on belong to the end that they are of. To wait, a [`Slot::Event`] or a
//! [`Slot::Room`] goes into a [`wait::any`](crate::base::wait::any), together with exits and flags.
//!
//! [`Slot::Event`]: crate::base::wait::Slot::Event
//! [`Slot::Room`]: crate::base::wait::Slot::Room

mod inbox;
mod inheritance;
mod outbox;
#[cfg(test)]
mod tests;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::collections::VecDeque;
use std::io;

use crate::base::event::{Event, Source};
use crate::base::handle::Handle;
use crate::process::child::ChildHandle;
use inbox::Inbox;
pub use inheritance::{Inheritance, inheritance, inherited, variables};
use outbox::Outbox;

/// The most handles that one message may carry, and that may be waiting at one end.
pub const MOST_HANDLES: usize = 64;

/// How much is read ahead at once.
pub const READ_AHEAD_BYTES: usize = 64 << 10;

/// One end of a link.
///
/// # Drop
/// Closes the end: the other side finds the end of the stream. What it had not read yet it still gets;
/// what was not handed over yet is lost.
#[derive(Debug)]
pub struct End {
    pub(crate) socket: imp::Socket,
    inbox: Inbox,
    outbox: Outbox,
    handles: VecDeque<Handle>,
    /// The other side has closed, or is gone.
    ended: bool,
    calls: Calls,
}

/// How many calls of the system an end has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Calls {
    /// To take in what has arrived.
    pub receive: u64,
    /// To hand over what is to go.
    pub send: u64,
}

/// What there is to take in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    /// That many bytes more: of these so many went to where the caller wanted them.
    Bytes {
        /// Bytes appended to the caller's buffer.
        to_caller: usize,
        /// Bytes that stand in the end's own buffer now.
        ahead: usize,
    },
    /// Nothing, so far.
    Nothing,
    /// The other side has closed its end, or is gone; nothing will ever come again.
    End,
}

/// Whether a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Yes,
    No,
}

/// Makes a link: our end, and the handle of the other one, to be passed to another process.
///
/// Neither is inherited by a child unless it is given to one.
///
/// # Platform
/// Linux: `socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)`. macOS: the same, then `FD_CLOEXEC`.
/// Windows: `CreateNamedPipeW(PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED)` with 1 MiB for each direction, under
/// a random name below `\\.\pipe\LOCAL\`, as the first and only instance and for this machine only, then
/// `CreateFileW(FILE_FLAG_OVERLAPPED)` for the other end.
///
/// # Errors
/// No room for two more handles.
///
/// ```
/// # use pipewright_os::channel::handle_channel::{self, End};
/// # use pipewright_os::base::wait::{self, Slot};
/// use std::io::IoSlice;
///
/// let (mut ours, theirs) = handle_channel::pair()?;
/// let mut theirs = End::from_handle(theirs)?;
/// ours.send(&[IoSlice::new(b"hel"), IoSlice::new(b"lo")])?;
/// wait::any(&mut [Slot::Event(&theirs)], None)?;
/// theirs.receive(1024)?;
/// assert_eq!(theirs.arrived(), b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "socketpair")]
pub fn pair() -> io::Result<(End, Handle)> {
    let (ours, theirs) = imp::pair()?;
    Ok((End::of(ours), theirs))
}

/// Whom this process belongs to, as a text that is another one for every user of this machine.
///
/// # Platform
/// Unix: the number of the effective user. Windows: the identifier of the user in the token of the process
/// (`S-1-5-21-...`).
#[must_use]
pub fn user() -> String {
    imp::user()
}

/// Whether that is what an end says of handles that came and are closed, because this process may have no more. The
/// bytes that came with them have arrived all the same.
///
/// # Platform
/// Unix: `EMFILE`. Windows: never; handles are taken by the side that has them.
#[must_use]
pub fn lacks_room_for_handles(error: &io::Error) -> bool {
    imp::lacks_room_for_handles(error)
}

/// Happens when something has arrived, or nothing ever will again. There is room when more can be handed over, or never
/// will.
impl Event for End {
    fn source(&self) -> Source<'_> {
        imp::arrival(&self.socket)
    }

    fn room(&self) -> Source<'_> {
        imp::room(&self.socket)
    }

    fn has_happened(&self) -> bool {
        !self.arrived().is_empty() || self.has_ended()
    }
}

impl End {
    fn of(socket: imp::Socket) -> End {
        End {
            socket,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            handles: VecDeque::new(),
            ended: false,
            calls: Calls::default(),
        }
    }

    /// An end from the handle that another process passed on.
    ///
    /// # Errors
    /// `InvalidInput`: it is not the end of a link.
    pub fn from_handle(handle: Handle) -> io::Result<End> {
        imp::socket(handle).map(End::of)
    }

    /// Says which child has the other end, before anything is sent: handles are passed to and from that
    /// process, and to no other.
    ///
    /// # Platform
    /// Unix: nothing; handles reach whoever has the other end. Windows: a copy of the handle of the
    /// process. It is told its number, and has to confirm it.
    ///
    /// # Errors
    /// No room for another handle.
    pub fn set_worker(&mut self, child: &ChildHandle) -> io::Result<()> {
        imp::set_worker(&mut self.socket, child)
    }

    /// Whether handles can be passed over the link, as far as that is known yet.
    ///
    /// # Platform
    /// Unix: always. Windows: where the other end is a child's that was [named](Self::set_worker) and has
    /// confirmed that, or the parent's that was asked so, or in this process.
    #[must_use]
    pub fn carries_handles(&self) -> bool {
        imp::carries_handles(&self.socket)
    }

    /// The bytes that have arrived and are not consumed.
    #[inline]
    #[must_use]
    pub fn arrived(&self) -> &[u8] {
        self.inbox.bytes()
    }

    /// Takes the first of the bytes that have arrived away.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.inbox.consume(count);
    }

    /// Takes in what is there, behind what has arrived before, without waiting; nothing where that is
    /// as much as `most` already.
    ///
    /// # Platform
    /// Unix: `recvmsg(MSG_DONTWAIT | MSG_CMSG_CLOEXEC)`, once. Windows: the end of an overlapped
    /// `ReadFile`, and the beginning of the next; `DuplicateHandle(DUPLICATE_CLOSE_SOURCE)` for handles.
    ///
    /// # Errors
    /// `OutOfMemory`; `InvalidData`: more handles came than may be waiting, and are closed; Windows: a handle was
    /// announced that is none, or by somebody who is not known. [Too few](lacks_room_for_handles) handles that this
    /// process may have (`EMFILE`, where the system says `MSG_CTRUNC`). `BrokenPipe` (Windows): the other side has ended before its handles
    /// could be taken.
    pub fn receive(&mut self, most: usize) -> io::Result<Arrived> {
        if self.inbox.bytes().len() >= most {
            return Ok(Arrived::Nothing);
        }
        imp::receive(self, None, Wait::No)
    }

    /// As [`receive`](Self::receive), and waits until there is something: for a side that has nothing else
    /// to wait for, a call less than to wait and then to receive.
    ///
    /// # Platform
    /// Unix: `recvmsg(MSG_CMSG_CLOEXEC)`, once. Windows: waits for the read that is under way.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn wait_and_receive(&mut self) -> io::Result<Arrived> {
        imp::receive(self, None, Wait::Yes)
    }

    /// As [`receive`](Self::receive), where what comes first, up to so many bytes, is wanted behind the
    /// bytes of `to`. Only where nothing is left of what arrived before.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_into(&mut self, to: &mut Vec<u8>, count: usize) -> io::Result<Arrived> {
        if count == 0 || !self.inbox.bytes().is_empty() {
            return Ok(Arrived::Nothing);
        }
        to.try_reserve(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        imp::receive(self, Some((to, count)), Wait::No)
    }

    /// The first of the handles that have come and were not taken.
    pub fn take_handle(&mut self) -> Option<Handle> {
        self.handles.pop_front()
    }

    /// How many handles have come and were not taken.
    #[must_use]
    pub fn waiting_handles(&self) -> usize {
        self.handles.len()
    }

    /// Hands the parts over, in this order and after everything before. What the system does not take
    /// at once is kept, and goes with the next call, or [`flush`](Self::flush).
    ///
    /// # Platform
    /// Unix: `sendmsg(MSG_DONTWAIT | MSG_NOSIGNAL)`, once. Windows: an overlapped `WriteFile` of a copy;
    /// what of it waits for room counts as kept.
    ///
    /// # Errors
    /// `BrokenPipe`: the other side is gone. `OutOfMemory`.
    pub fn send(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
        let mut taken = 0;
        if self.outbox.is_empty() {
            taken = imp::send(self, parts, &[])?;
        }
        self.outbox.keep_rest(parts, taken)?;
        if taken == 0 && !self.outbox.is_empty() {
            self.flush()?;
        }
        Ok(())
    }

    /// Keeps the bytes until the next call that hands something over.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn send_later(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.outbox.keep_rest(parts, 0)
    }

    /// As [`send`](Self::send), with handles, which go with the first byte. `false`: there is no room,
    /// and nothing was handed over. Only where nothing is kept.
    ///
    /// # Errors
    /// As [`send`](Self::send); `InvalidInput`: no bytes, more than [`MOST_HANDLES`], or something is
    /// kept. What the system says of too many handles on their way (`ETOOMANYREFS`). `Unsupported`
    /// (Windows): the link does not [carry handles](Self::carries_handles).
    pub fn send_handles(
        &mut self,
        parts: &[io::IoSlice<'_>],
        handles: &[Handle],
    ) -> io::Result<bool> {
        let has_bytes = parts.iter().any(|part| !part.is_empty());
        if !has_bytes || handles.len() > MOST_HANDLES || !self.outbox.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let taken = imp::send(self, parts, handles)?;
        if taken == 0 {
            return Ok(false);
        }
        self.outbox.keep_rest(parts, taken)?;
        Ok(true)
    }

    /// Hands over what is kept, as much as the system takes. How much is left.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn flush(&mut self) -> io::Result<usize> {
        while !self.outbox.is_empty() {
            // Lent for the call: what is being sent stays where it is.
            let outbox = std::mem::take(&mut self.outbox);
            let sent = imp::send(self, &[io::IoSlice::new(outbox.bytes())], &[]);
            self.outbox = outbox;
            match sent? {
                0 => break,
                count => self.outbox.consume(count),
            }
        }
        imp::settle(&mut self.socket)?;
        Ok(self.unsent())
    }

    /// How many bytes are kept that the system has not taken yet.
    #[inline]
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.outbox.bytes().len() + imp::unsent(&self.socket)
    }

    /// Whether the other side was found to have closed its end, or to be gone.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// How many calls of the system were made.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.calls
    }
}
