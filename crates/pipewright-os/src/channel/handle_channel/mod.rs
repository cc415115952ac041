//! A two-way byte stream between two processes that also carries handles and reports when the other side is
//! gone.
//!
//! The interface is completion-based, as in [`wait`](crate::base::wait). Received bytes are in the end's own buffer
//! ([`ChannelEnd::arrived`]). Bytes to send are handed over ([`ChannelEnd::send`]), and the end keeps what the system
//! does not accept at once. No method blocks unless its name contains `wait`, and the end owns the buffers that the
//! system may use. To wait, pass a [`Slot::Event`] or a [`Slot::Room`] to [`wait::any`](crate::base::wait::any),
//! together with child exits and flags.
//!
//! [`Slot::Event`]: crate::base::wait::Slot::Event
//! [`Slot::Room`]: crate::base::wait::Slot::Room

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::collections::VecDeque;
use std::env;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::handle::Handle;
use crate::base::service_thread;
use crate::base::wake::{EventSource, WaitEvent};
use crate::process::child::ChildHandle;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
use windows as imp;

/// The maximum number of handles in one message, and of received handles that were not taken.
pub const MOST_HANDLES: usize = 64;

/// The number of bytes to read ahead at once.
pub const READ_AHEAD_BYTES: usize = 64 << 10;

/// One end of a handle channel.
///
/// # Drop
/// Closes the end. The other side still receives what was handed to the system, and then the end of the
/// stream. Bytes that the end kept are lost.
#[derive(Debug)]
pub struct ChannelEnd {
    pub(crate) socket: imp::Socket,
    receive_buffer: ReceiveBuffer,
    send_buffer: SendBuffer,
    handles: VecDeque<Handle>,
    /// The other side may pass no handles any more.
    refuses_handles: bool,
    /// True if the other side has closed its end or is gone.
    ended: bool,
    calls: CallCounts,
}

/// The number of system calls that an end has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCounts {
    /// The number of calls that received.
    pub receive: u64,
    /// The number of calls that sent.
    pub send: u64,
}

/// The result of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    /// More bytes arrived.
    Bytes {
        /// The number of bytes appended to the caller's buffer.
        to_caller: usize,
        /// The number of bytes appended to the end's own buffer.
        ahead: usize,
    },
    /// No bytes arrived yet.
    Nothing,
    /// The other side has closed its end or is gone. Nothing will arrive any more.
    End,
}

/// The choice between a call that blocks and one that doesn't.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocking {
    Yes,
    No,
}

/// Creates a handle channel. Returns our end, and the handle of the other end to pass to another process.
///
/// Children inherit neither unless it is passed to them.
///
/// # Platform
/// Linux: `socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)`. macOS: the same, then `FD_CLOEXEC`. Windows:
/// `CreateNamedPipeW(PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED)` with 1 MiB for each direction, under a random
/// name below `\\.\pipe\LOCAL\`, as the first and only instance and for this machine only, then
/// `CreateFileW(FILE_FLAG_OVERLAPPED)` for the other end.
///
/// # Errors
/// The limit on handles was reached.
///
/// ```
/// # use pipewright_os::channel::handle_channel::{self, ChannelEnd};
/// # use pipewright_os::base::wait::{self, Slot};
/// use std::io::IoSlice;
///
/// let (mut ours, theirs) = handle_channel::pair()?;
/// let mut theirs = ChannelEnd::from_handle(theirs)?;
/// ours.send(&[IoSlice::new(b"hel"), IoSlice::new(b"lo")])?;
/// wait::any(&mut [Slot::Event(&theirs)], None)?;
/// theirs.receive(1024)?;
/// assert_eq!(theirs.arrived(), b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "socketpair")]
pub fn pair() -> io::Result<(ChannelEnd, Handle)> {
    let (ours, theirs) = imp::pair()?;
    Ok((ChannelEnd::of(ours), theirs))
}

/// Returns the user of this process, as a text that differs between the users of this machine.
///
/// # Platform
/// Unix: the effective user ID. Windows: the user's SID from the token of the process (`S-1-5-21-...`).
#[must_use]
pub fn user() -> String {
    imp::user()
}

/// Returns true if the error means that received handles were closed because this process may not have more.
/// The bytes that came with them have arrived.
///
/// # Platform
/// Unix: `EMFILE`. Windows: never, because the receiving side takes the handles itself.
#[must_use]
pub fn lacks_room_for_handles(error: &io::Error) -> bool {
    imp::lacks_room_for_handles(error)
}

/// Signals when bytes have arrived or the stream has ended. There is room when more can be sent, or when the
/// stream has ended.
impl WaitEvent for ChannelEnd {
    fn source(&self) -> EventSource<'_> {
        imp::arrival(&self.socket)
    }

    fn room(&self) -> EventSource<'_> {
        imp::room(&self.socket)
    }

    fn has_happened(&self) -> bool {
        !self.arrived().is_empty() || self.has_ended()
    }
}

impl ChannelEnd {
    fn of(socket: imp::Socket) -> ChannelEnd {
        ChannelEnd {
            socket,
            receive_buffer: ReceiveBuffer::default(),
            send_buffer: SendBuffer::default(),
            handles: VecDeque::new(),
            refuses_handles: false,
            ended: false,
            calls: CallCounts::default(),
        }
    }

    /// Creates an end from a handle that another process passed.
    ///
    /// # Errors
    /// `InvalidInput`: the handle is not a channel end.
    pub fn from_handle(handle: Handle) -> io::Result<ChannelEnd> {
        imp::socket(handle).map(ChannelEnd::of)
    }

    /// Sets the child that has the other end. Handles are passed only to and from that process. Call it before
    /// anything is sent.
    ///
    /// # Platform
    /// Unix: does nothing; handles reach any process that has the other end. Windows: copies the process
    /// handle. The child receives its process ID and has to confirm it.
    ///
    /// # Errors
    /// The limit on handles was reached.
    pub fn set_worker(&mut self, child: &ChildHandle) -> io::Result<()> {
        imp::set_worker(&mut self.socket, child)
    }

    /// Returns true if handles are known to pass.
    ///
    /// # Platform
    /// Unix: always. Windows: if the other end belongs to a [child](Self::set_worker) that has confirmed its
    /// process ID, to a parent that asked for the confirmation, or to this process.
    #[must_use]
    pub fn carries_handles(&self) -> bool {
        imp::carries_handles(&self.socket)
    }

    /// Returns the bytes that have arrived and were not consumed.
    #[inline]
    #[must_use]
    pub fn arrived(&self) -> &[u8] {
        self.receive_buffer.bytes()
    }

    /// Consumes received bytes.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.receive_buffer.consume(count);
    }

    /// Receives the bytes that are available and appends them to those that arrived before. Doesn't wait.
    /// Receives nothing if `most` bytes or more have already arrived.
    ///
    /// # Platform
    /// Unix: `recvmsg(MSG_DONTWAIT | MSG_CMSG_CLOEXEC)`, once. Windows: the completion of an overlapped
    /// `ReadFile`, and the start of the next; `DuplicateHandle(DUPLICATE_CLOSE_SOURCE)` for handles.
    ///
    /// # Errors
    /// `OutOfMemory`. `InvalidData`: too many handles arrived, and were closed; on Windows also: an announced
    /// handle does not exist, or an unknown process announced it. `EMFILE`, if the system reports
    /// `MSG_CTRUNC`: this process may not have [more handles](lacks_room_for_handles). `BrokenPipe` (Windows):
    /// the other side ended before its handles could be taken.
    pub fn receive(&mut self, most: usize) -> io::Result<Arrived> {
        if self.receive_buffer.bytes().len() >= most {
            return Ok(Arrived::Nothing);
        }
        imp::receive(self, None, Blocking::No)
    }

    /// Waits until bytes are available and [receives](Self::receive) them. This saves a system call if there is
    /// nothing else to wait for.
    ///
    /// # Platform
    /// Unix: `recvmsg(MSG_CMSG_CLOEXEC)`, once. Windows: waits for the read in progress.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn wait_and_receive(&mut self) -> io::Result<Arrived> {
        imp::receive(self, None, Blocking::Yes)
    }

    /// [Receives](Self::receive) up to `count` bytes directly into the caller's buffer, behind its contents.
    /// Receives nothing while earlier bytes are not consumed.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_into(&mut self, to: &mut Vec<u8>, count: usize) -> io::Result<Arrived> {
        if count == 0 || !self.receive_buffer.bytes().is_empty() {
            return Ok(Arrived::Nothing);
        }
        to.try_reserve(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
        imp::receive(self, Some((to, count)), Blocking::No)
    }

    /// Takes the first received handle.
    pub fn take_handle(&mut self) -> Option<Handle> {
        self.handles.pop_front()
    }

    /// Returns the number of received handles that were not taken.
    #[must_use]
    pub fn waiting_handles(&self) -> usize {
        self.handles.len()
    }

    /// Accepts no handles from now on: what comes with some is an error (`InvalidData`), and they are closed on another
    /// thread.
    pub fn refuse_handles(&mut self) {
        self.refuses_handles = true;
    }

    /// Ends both directions. Returns true if the drop of the end may block, which belongs [elsewhere](drop_elsewhere)
    /// then: something that was not received may have handles, which the drop closes. (Unix: `shutdown(SHUT_RDWR)`,
    /// `ioctl(FIONREAD)`. Windows: the other side keeps those that were not received.)
    pub fn end_both(&mut self) -> bool {
        imp::end_both(&self.socket) || !self.handles.is_empty()
    }

    /// Returns the error for handles that are [refused](Self::refuse_handles).
    fn refusal(handles: Vec<Handle>) -> io::Error {
        drop_elsewhere(handles);
        io::Error::new(io::ErrorKind::InvalidData, "handles came, and none are accepted")
    }

    /// Sends the parts, in order and after everything sent before. The end keeps what the system does not
    /// accept at once and sends it with the next call or [`flush`](Self::flush).
    ///
    /// # Platform
    /// Linux: `sendmsg(MSG_DONTWAIT | MSG_NOSIGNAL)`, once. macOS: `sendmsg` on an end that is non-blocking; on one of
    /// other code
    /// `poll` first, and then no more than fits. Windows: an overlapped `WriteFile` of a copy; bytes
    /// waiting for space in the pipe count as kept.
    ///
    /// # Errors
    /// `BrokenPipe`: the other side is gone. `OutOfMemory`.
    pub fn send(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
        let mut taken = 0;
        if self.send_buffer.is_empty() {
            taken = imp::send(self, parts, &[])?;
        }
        self.send_buffer.keep_rest(parts, taken)?;
        if taken == 0 && !self.send_buffer.is_empty() {
            self.flush()?;
        }
        Ok(())
    }

    /// Keeps the bytes until the next call that sends.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn send_later(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.send_buffer.keep_rest(parts, 0)
    }

    /// [Sends](Self::send) bytes with handles, which travel with the first byte. Returns false if there is no
    /// room, in which case nothing was sent. Requires that no bytes are kept.
    ///
    /// # Errors
    /// As for [`send`](Self::send). `InvalidInput`: there are no bytes, more than [`MOST_HANDLES`] handles, or
    /// kept bytes. `ETOOMANYREFS`: too many handles are in transit. `Unsupported` (Windows): the channel does
    /// not [carry handles](Self::carries_handles).
    pub fn send_handles(
        &mut self,
        parts: &[io::IoSlice<'_>],
        handles: &[Handle],
    ) -> io::Result<bool> {
        let has_bytes = parts.iter().any(|part| !part.is_empty());
        if !has_bytes || handles.len() > MOST_HANDLES || !self.send_buffer.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let taken = imp::send(self, parts, handles)?;
        if taken == 0 {
            return Ok(false);
        }
        self.send_buffer.keep_rest(parts, taken)?;
        Ok(true)
    }

    /// Sends the kept bytes that the system accepts. Returns the number of bytes left.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn flush(&mut self) -> io::Result<usize> {
        while !self.send_buffer.is_empty() {
            // Moved out for the call, which borrows the end.
            let send_buffer = std::mem::take(&mut self.send_buffer);
            let sent = imp::send(self, &[io::IoSlice::new(send_buffer.bytes())], &[]);
            self.send_buffer = send_buffer;
            match sent? {
                0 => break,
                count => self.send_buffer.consume(count),
            }
        }
        imp::settle(&mut self.socket)?;
        Ok(self.unsent())
    }

    /// Ends this direction of the stream: the other side receives what was sent, and then the end. Requires that no
    /// bytes are kept, and nothing may be sent afterwards. The other direction stays open.
    ///
    /// # Platform
    /// Unix: `shutdown(SHUT_WR)`. Windows: does nothing, because a pipe has no such call.
    pub fn end_sending(&mut self) {
        imp::end_sending(&self.socket);
    }

    /// Returns the number of bytes that the system has not accepted yet.
    #[inline]
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.send_buffer.bytes().len() + imp::unsent(&self.socket)
    }

    /// Returns true if the other side is known to have closed its end or to be gone.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the number of system calls made.
    #[must_use]
    pub fn calls(&self) -> CallCounts {
        self.calls
    }
}

/// Drops handles that somebody else made, or their owner, on another thread: to close one may block for as long as they
/// like (`SO_LINGER`).
pub fn drop_elsewhere(handles: impl Send + 'static) {
    // If there can be no thread, this one drops them.
    let _ = service_thread::start(c"pw-close", move || drop(handles));
}

/// Returns the error for a handle that the parent did not pass on.
fn not_inherited() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the handle was not inherited from the parent process",
    )
}

// Inheritance of a channel end: the variables that announce it, and the child's claim.

/// Returns the environment variables that announce the channel end that a child inherits. The first holds its
/// number. The second, if any, identifies the end, because another handle may get the number later.
///
/// Descendants of the child inherit the variables but not the end. The second variable keeps them from mistaking
/// one of their own handles for the end.
///
/// # Platform
/// Unix: `VARIABLE_ID` is the number again, and `st_dev` and `st_ino` of the socket. Windows: there is no
/// second variable.
#[must_use]
pub fn variables(variable: &str, handle: &Handle) -> [(String, Option<String>); 2] {
    let number = handle.number();
    let id = imp::id(handle).map(|id| format!("{number}:{id}"));
    [(variable.to_owned(), Some(number.to_string())), (id_variable(variable), id)]
}

fn id_variable(variable: &str) -> String {
    format!("{variable}_ID")
}

/// True once this process has claimed the end that it inherited.
static CLAIMED: AtomicBool = AtomicBool::new(false);

/// The state of the channel end that a process may have inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inheritance {
    /// None was inherited.
    Nothing,
    /// One was inherited and not claimed.
    Unclaimed,
    /// One was [claimed](inherited). It may be closed by now.
    Claimed,
}

/// Returns the state of the channel end that this process may have inherited, without claiming it. See
/// [`inherited`].
#[must_use]
pub fn inheritance(variable: &str) -> Inheritance {
    if CLAIMED.load(Ordering::SeqCst) {
        return Inheritance::Claimed;
    }
    match announced(variable) {
        Ok(_) => Inheritance::Unclaimed,
        // Another thread may just have claimed it.
        Err(_) if CLAIMED.load(Ordering::SeqCst) => Inheritance::Claimed,
        Err(_) => Inheritance::Nothing,
    }
}

/// Claims the channel end that this process inherited from its parent. The environment variable holds its
/// number. This works once per process, and children of this process don't inherit the end.
///
/// # Platform
/// Unix: accepts one end of a pair of stream sockets without `FD_CLOEXEC`, and if `VARIABLE_ID` is set, only the end
/// that it identifies. A handle opened by this program is therefore not accepted, unless it is such a pair without the
/// flag, which std never creates: so a stale variable cannot claim a handle of other code. Windows: accepts an
/// inherited pipe end that was opened for overlapped calls.
///
/// # Errors
/// `NotFound`: the variable or the handle does not exist. `InvalidInput`: the handle is not a channel end.
pub fn inherited(variable: &str) -> io::Result<ChannelEnd> {
    let number = announced(variable);
    if CLAIMED.load(Ordering::SeqCst) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let number = number?;
    if CLAIMED.swap(true, Ordering::SeqCst) {
        return Err(io::ErrorKind::NotFound.into());
    }
    imp::inherited(number).map(ChannelEnd::of)
}

/// Returns the number in the variable, if this process has inherited such an end.
fn announced(variable: &str) -> io::Result<i32> {
    let number = env::var(variable).ok().and_then(|number| number.parse().ok());
    let number: i32 = number.filter(|number| *number > 2).ok_or(io::ErrorKind::NotFound)?;
    let id = env::var(id_variable(variable)).ok();
    // Another host left a variable for another number behind.
    let id = id.as_deref().and_then(|id| id.strip_prefix(&format!("{number}:")));
    imp::check(number, id)?;
    Ok(number)
}

#[derive(Debug, Default)]
struct ReceiveBuffer {
    buffer: Vec<u8>,
    /// The number of bytes already consumed.
    start: usize,
}

impl ReceiveBuffer {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.buffer.len());
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
    }

    /// Returns the buffer, with space for one read-ahead.
    fn room(&mut self) -> io::Result<&mut Vec<u8>> {
        if self.buffer.capacity() - self.buffer.len() < READ_AHEAD_BYTES {
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            if self.buffer.is_empty() && self.buffer.capacity() > 4 * READ_AHEAD_BYTES {
                // The buffer had to grow while the reader was blocked. Shrink it again.
                self.buffer = Vec::new();
            }
            self.buffer.try_reserve(READ_AHEAD_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        Ok(&mut self.buffer)
    }
}

#[derive(Debug, Default)]
struct SendBuffer {
    buffer: Vec<u8>,
    /// The number of bytes already accepted.
    start: usize,
}

impl SendBuffer {
    #[inline]
    fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// Removes bytes that were accepted.
    fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start >= self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            if self.buffer.capacity() > MAX_KEPT_BYTES {
                self.buffer = Vec::new();
            }
        }
    }

    /// Appends the rest of the parts, of which `taken` bytes were accepted.
    fn keep_rest(&mut self, parts: &[IoSlice<'_>], taken: usize) -> io::Result<()> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let rest = total.saturating_sub(taken);
        if rest == 0 {
            return Ok(());
        }
        self.buffer.try_reserve(rest).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut skip = taken;
        for part in parts {
            let now = skip.min(part.len());
            self.buffer.extend_from_slice(part.get(now..).unwrap_or_default());
            skip -= now;
        }
        Ok(())
    }
}

/// The capacity above which an empty buffer is freed.
const MAX_KEPT_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests;
