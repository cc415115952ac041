//! A two-way named pipe with overlapped calls.
//!
//! A read is always in progress, into a buffer of the end. A write is in progress while the pipe has no room
//! for it, from another buffer of the end. Each has an event, which is set when bytes can be received or sent.
//! A [`wait`](crate::base::wait) waits for these events.
//!
//! # Handles
//! A handle is a number that is valid in one process. The bytes in the pipe are therefore divided into packets
//! that name the handles of their bytes (`packets.rs`). Only a process with a handle to that process and the
//! right to duplicate can insert or remove one, and such a handle gives full control. For that reason the
//! parent does both, and the child has no access to its parent:
//!
//! | sender | transfer |
//! |---|---|
//! | the parent | duplicates the handle into its child and sends the number |
//! | the child | makes a copy of its own and sends the number; the parent removes it from the child |
//!
//! A child can therefore name only its own handles, and harms only itself with wrong ones. The parent checks
//! only that the number could be that of a handle.
//!
//! Another process may stand between the two, such as a shell that started the child. The numbers would then
//! be valid in the shell. Each side therefore first announces the process ID it means, and handles are passed
//! only if both are the same.
//!
//! If both ends are in this process, handles go from one to the other in a queue. Numbers would work too, but a
//! process that later gets the other end could then name handles of this process.

mod packets;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::os::windows::ffi::OsStringExt as _;
use std::os::windows::io::{
    AsHandle as _, AsRawHandle as _, BorrowedHandle, FromRawHandle, OwnedHandle,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{process, ptr};

use windows_sys::Win32::Foundation::{
    DUPLICATE_CLOSE_SOURCE, DUPLICATE_SAME_ACCESS, DuplicateHandle, ERROR_ACCESS_DENIED, HANDLE,
    LocalFree,
};
use windows_sys::Win32::Security::Authorization::ConvertSidToStringSidW;
use windows_sys::Win32::Security::{GetTokenInformation, TOKEN_QUERY, TOKEN_USER, TokenUser};
use windows_sys::Win32::Storage::FileSystem::{FileNameInfo, GetFileInformationByHandleEx};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use super::{Arrived, Blocking, ChannelEnd, MOST_HANDLES, ReceiveBuffer, not_inherited};
use crate::base::handle::{Handle, copy_of, inheritable, number_of};
use crate::base::pipe::duplex;
use crate::base::wake::{EventSource, is_signalled};
use crate::process::child::ChildHandle;
use packets::{Announced, ChannelReader, ChannelWriter, Decoder, NextItem, ReadResult};

/// The capacity of the pipe per direction. With less, a sender of large messages waits too often.
const PIPE_BYTES: u32 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Socket {
    reads: ChannelReader,
    writes: ChannelWriter,
    decoder: Decoder,
    peer: PeerProcess,
}

pub(super) fn pair() -> io::Result<(Socket, Handle)> {
    let (ours, theirs) = duplex(PIPE_BYTES)?;
    let peer = LocalPair::begin(&ours).map_or(PeerProcess::Unknown, PeerProcess::Local);
    Ok((Socket::of(ours, peer)?, Handle::from(theirs)))
}

pub(super) fn socket(handle: Handle) -> io::Result<Socket> {
    if !handle.is_overlapped() {
        return Err(no_link());
    }
    let file = OwnedHandle::from(handle);
    let peer = LocalPair::join(&file).map_or(PeerProcess::Unknown, PeerProcess::Local);
    Socket::of(file, peer)
}

/// Checks that the number is that of an inherited pipe that was opened for overlapped calls.
pub(super) fn check(number: i32, _: Option<&str>) -> io::Result<()> {
    copy_of_inherited(number).map(drop)
}

/// Returns `None`: no ID distinguishes a pipe from a later one with the same number.
pub(super) fn id(_: &Handle) -> Option<String> {
    None
}

fn copy_of_inherited(number: i32) -> io::Result<Handle> {
    // Handles are multiples of 4. The system ignores the lower two bits, so other numbers would name the same handles.
    if number % 4 != 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let raw = ptr::without_provenance_mut(number as usize);
    // SAFETY: the number is only queried. If it is not open, the call fails.
    let asked = unsafe { BorrowedHandle::borrow_raw(raw) };
    let passed_on = inheritable(asked).map_err(|_| io::ErrorKind::NotFound)?;
    let copy = Handle::copy_of_number(number)?;
    if !passed_on || !copy.is_overlapped() {
        return Err(not_inherited());
    }
    Ok(copy)
}

/// Takes an end that was [checked](check).
pub(super) fn inherited(number: i32) -> io::Result<Socket> {
    let copy = copy_of_inherited(number)?;
    let raw = ptr::without_provenance_mut(number as usize);
    // SAFETY: passed to this process under that number, and this is the first code to take it. Children don't
    // inherit the copy.
    drop(unsafe { OwnedHandle::from_raw_handle(raw) });
    Socket::of(OwnedHandle::from(copy), PeerProcess::parent())
}

impl Socket {
    fn of(file: OwnedHandle, peer: PeerProcess) -> io::Result<Socket> {
        let file = Arc::new(file);
        let mut reads = ChannelReader::new(Arc::clone(&file))?;
        reads.go_on();
        if reads.is_refused() {
            return Err(no_link());
        }
        Ok(Socket { reads, writes: ChannelWriter::new(file)?, decoder: Decoder::default(), peer })
    }
}

/// Returns the number of bytes that are not in the pipe yet.
pub(super) fn unsent(socket: &Socket) -> usize {
    socket.writes.unsent()
}

/// Continues to write what is not in the pipe yet.
pub(super) fn settle(socket: &mut Socket) -> io::Result<()> {
    socket.writes.settle().map(drop)
}

/// Returns false: a process may have millions of handles.
pub(super) fn lacks_room_for_handles(_: &io::Error) -> bool {
    false
}

pub(super) fn carries_handles(socket: &Socket) -> bool {
    socket.peer.carries_handles()
}

/// Does nothing: a pipe ends in both directions at once.
pub(super) fn end_sending(_: &Socket) {}

/// Does nothing: the other process keeps its handles until they are taken.
pub(super) fn end_both(_: &Socket) -> bool {
    false
}

pub(super) fn set_worker(socket: &mut Socket, child: &ChildHandle) -> io::Result<()> {
    socket.peer = PeerProcess::child(child)?;
    Ok(())
}

/// Sends once. Returns 0 if there is no room.
pub(super) fn send(
    end: &mut ChannelEnd,
    parts: &[IoSlice<'_>],
    handles: &[Handle],
) -> io::Result<usize> {
    let Socket { writes, peer, .. } = &mut end.socket;
    // There are no empty packets.
    let is_nothing = parts.iter().all(|part| part.is_empty());
    if !writes.settle()? || is_nothing {
        return Ok(0);
    }
    let given = peer.give(handles)?;
    end.calls.send += 1;
    writes.begin(peer.introduction(), given, parts)
}

/// Receives once: into the caller's buffer first, then into our own.
pub(super) fn receive(
    end: &mut ChannelEnd,
    mut caller: Option<(&mut Vec<u8>, usize)>,
    wait: Blocking,
) -> io::Result<Arrived> {
    loop {
        let arrived = deliver(end, &mut caller);
        let Socket { reads, decoder, .. } = &mut end.socket;
        reads.go_on();
        reads.tell(decoder.is_announced());
        end.calls.receive = reads.calls();
        match arrived? {
            Arrived::Nothing => {}
            arrived => return Ok(arrived),
        }
        match end.socket.reads.finish(wait)? {
            ReadResult::Bytes => {}
            ReadResult::Nothing => return Ok(Arrived::Nothing),
            ReadResult::End => {
                end.ended = true;
                return Ok(Arrived::End);
            }
        }
    }
}

/// Delivers the bytes read, up to the next ones that come with handles.
fn deliver(
    end: &mut ChannelEnd,
    caller: &mut Option<(&mut Vec<u8>, usize)>,
) -> io::Result<Arrived> {
    let ChannelEnd {
        socket: Socket { reads, decoder, peer, .. },
        receive_buffer,
        handles,
        refuses_handles,
        ..
    } = end;
    let (mut to_caller, mut ahead) = (0, 0);
    while let Some(next) = decoder.next(reads.bytes()) {
        let front = |count: usize| reads.bytes().get(..count).unwrap_or_default();
        match next {
            NextItem::Bytes(count) => {
                let wanted = caller.as_ref().map_or(0, |(_, wanted)| *wanted - to_caller);
                let (first, rest) = front(count).split_at(wanted.min(count));
                if let Some((to, _)) = caller {
                    to.extend_from_slice(first);
                }
                keep(receive_buffer, rest)?;
                (to_caller, ahead) = (to_caller + first.len(), ahead + rest.len());
                decoder.pass(count);
                reads.consume(count);
            }
            NextItem::Header(count) => {
                decoder.add(front(count));
                reads.consume(count);
            }
            // The handles belong to the bytes after them, not to those before.
            NextItem::Announced if to_caller + ahead > 0 => break,
            NextItem::Announced => match decoder.take()? {
                Announced::Process(id) => peer.confirm(id),
                Announced::Handles(numbers) => {
                    let received = peer.take(&numbers)?;
                    if *refuses_handles && !received.is_empty() {
                        return Err(ChannelEnd::refusal(received));
                    }
                    if handles.len() + received.len() > MOST_HANDLES {
                        let message = "more than 64 handles in one message";
                        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                    }
                    handles.extend(received);
                }
            },
        }
    }
    match (to_caller, ahead) {
        (0, 0) => Ok(Arrived::Nothing),
        _ => Ok(Arrived::Bytes { to_caller, ahead }),
    }
}

fn keep(receive_buffer: &mut ReceiveBuffer, bytes: &[u8]) -> io::Result<()> {
    if !bytes.is_empty() {
        receive_buffer.room()?.extend_from_slice(bytes);
    }
    Ok(())
}

fn no_link() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the handle is not an end of a handle channel")
}

pub(super) fn arrival(socket: &Socket) -> EventSource<'_> {
    EventSource::Signalled(socket.reads.event())
}

pub(super) fn room(socket: &Socket) -> EventSource<'_> {
    EventSource::Signalled(socket.writes.event())
}

// The process that has the other end, and the transfer of handles to and from it.

/// The process that has the other end.
#[derive(Debug)]
enum PeerProcess {
    /// An unknown process: no handles can be passed.
    Unknown,
    /// This process, if both ends are there.
    Local(PairEnd),
    /// A child of this process.
    Child { process: OwnedHandle, id: u32, confirmed: Confirmed },
    /// The process that started this one.
    Parent { confirmed: Confirmed },
}

/// The confirmations that both sides mean the same process.
#[derive(Debug, Clone, Copy, Default)]
struct Confirmed {
    /// True if the other side has confirmed it.
    by_other_side: bool,
    /// True if this side has confirmed it.
    by_this_side: bool,
}

/// Handles in transit to the other side.
#[derive(Debug, Default)]
struct OutgoingHandles {
    /// Their numbers in the other process or, for a child, in this one.
    numbers: Vec<u64>,
    /// The handles that the other side takes from this process.
    lent: Vec<OwnedHandle>,
}

impl PeerProcess {
    fn child(child: &ChildHandle) -> io::Result<PeerProcess> {
        let process = child.0.process().ok_or(io::ErrorKind::NotFound)?;
        let process = copy_of(process.as_raw_handle(), false)?;
        Ok(PeerProcess::Child { process, id: child.pid(), confirmed: Confirmed::default() })
    }

    fn parent() -> PeerProcess {
        PeerProcess::Parent { confirmed: Confirmed::default() }
    }

    fn carries_handles(&self) -> bool {
        match self {
            PeerProcess::Unknown => false,
            PeerProcess::Local(side) => side.is_complete(),
            PeerProcess::Child { confirmed, .. } | PeerProcess::Parent { confirmed } => {
                confirmed.by_other_side
            }
        }
    }

    /// Returns the process ID to announce to the other side, once.
    fn introduction(&mut self) -> Option<u32> {
        match self {
            PeerProcess::Child { id, confirmed, .. } if !confirmed.by_this_side => {
                confirmed.by_this_side = true;
                Some(*id)
            }
            PeerProcess::Parent { confirmed }
                if confirmed.by_other_side && !confirmed.by_this_side =>
            {
                confirmed.by_this_side = true;
                Some(process::id())
            }
            _ => None,
        }
    }

    /// Records the process ID that the other side announced.
    fn confirm(&mut self, theirs: u32) {
        match self {
            PeerProcess::Child { id, confirmed, .. } => confirmed.by_other_side = theirs == *id,
            PeerProcess::Parent { confirmed } => confirmed.by_other_side = theirs == process::id(),
            PeerProcess::Unknown | PeerProcess::Local(_) => {}
        }
    }

    /// Prepares handles for the other side.
    fn give(&self, handles: &[Handle]) -> io::Result<OutgoingHandles> {
        if handles.is_empty() {
            return Ok(OutgoingHandles::default());
        }
        if !self.carries_handles() {
            let message = "handles cannot be passed to an unknown process: see Channel::start";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        match self {
            PeerProcess::Local(side) => {
                let copies = handles.iter().map(Handle::try_clone).collect::<io::Result<_>>()?;
                side.give(copies);
                Ok(OutgoingHandles { numbers: vec![0; handles.len()], lent: Vec::new() })
            }
            PeerProcess::Child { process, .. } => {
                let mut numbers = Vec::with_capacity(handles.len());
                for handle in handles {
                    match put(process, handle) {
                        Ok(number) => numbers.push(number),
                        Err(error) => {
                            // Removes the handles inserted so far, which are never announced.
                            numbers.iter().for_each(|number| drop(take(process, *number)));
                            return Err(error);
                        }
                    }
                }
                Ok(OutgoingHandles { numbers, lent: Vec::new() })
            }
            _ => {
                let copy = |handle: &Handle| copy_of(handle.as_raw_handle(), false);
                let lent = handles.iter().map(copy).collect::<io::Result<Vec<_>>>()?;
                let number = |handle: &OwnedHandle| number_of(handle.as_raw_handle()) as u64;
                Ok(OutgoingHandles { numbers: lent.iter().map(number).collect(), lent })
            }
        }
    }

    /// Takes the handles that the other side announced.
    fn take(&self, numbers: &[u64]) -> io::Result<Vec<Handle>> {
        match self {
            PeerProcess::Local(side) => side.take(numbers.len()),
            PeerProcess::Child { process, confirmed, .. } if confirmed.by_other_side => {
                numbers.iter().map(|number| take(process, *number)).collect()
            }
            // They are in this process already. Wrong numbers from the parent are no new risk: it controls this
            // process.
            PeerProcess::Parent { confirmed } if confirmed.by_other_side => {
                // SAFETY: no arguments; a pseudo handle, which is not closed.
                let own = unsafe { GetCurrentProcess() };
                // SAFETY: as above.
                let own = unsafe { BorrowedHandle::borrow_raw(own) };
                numbers.iter().map(|number| take_from(own, *number)).collect()
            }
            _ => Err(wrong("an unknown process announced handles")),
        }
    }
}

/// Duplicates a handle into the process. Returns its number there.
fn put(process: &OwnedHandle, handle: &Handle) -> io::Result<u64> {
    let mut number = ptr::null_mut();
    // SAFETY: no arguments; a pseudo handle, which is not closed.
    let own = unsafe { GetCurrentProcess() };
    // SAFETY: open handles and a live place.
    let copied = unsafe {
        let (from, to) = (handle.as_raw_handle(), process.as_raw_handle());
        DuplicateHandle(own, from, to, &raw mut number, 0, 0, DUPLICATE_SAME_ACCESS)
    };
    if copied == 0 {
        let error = io::Error::last_os_error();
        return Err(of_ended(process.as_handle(), error));
    }
    Ok(number_of(number) as u64)
}

/// Takes a handle from a child, where it is closed.
fn take(process: &OwnedHandle, number: u64) -> io::Result<Handle> {
    take_from(process.as_handle(), number)
}

fn take_from(process: BorrowedHandle<'_>, number: u64) -> io::Result<Handle> {
    // Larger numbers are pseudo handles, which would mean our own process or thread.
    let number = i32::try_from(number).ok().filter(|number| *number > 0 && number % 4 == 0);
    let number = number.ok_or_else(|| wrong("the number is not that of a handle"))?;
    let theirs: HANDLE = ptr::without_provenance_mut(number as usize);
    let copy =
        copied(process, theirs, DUPLICATE_SAME_ACCESS).map_err(|error| of_ended(process, error))?;
    // Closed there by a second call, because under Wine a closing call never returns if the handle does not
    // exist. Ignored: a child that has closed it or has ended has no such handle any more.
    let _ = copied(process, theirs, DUPLICATE_SAME_ACCESS | DUPLICATE_CLOSE_SOURCE);
    Ok(Handle::from(copy))
}

fn copied(process: BorrowedHandle<'_>, theirs: HANDLE, how: u32) -> io::Result<OwnedHandle> {
    let mut copy = ptr::null_mut();
    // SAFETY: no arguments; a pseudo handle, which is not closed.
    let own = unsafe { GetCurrentProcess() };
    let from = process.as_raw_handle();
    // SAFETY: an open process and a live place. If the number is no handle there, the call fails.
    if unsafe { DuplicateHandle(from, theirs, own, &raw mut copy, 0, 0, how) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: created by the call above, and owned by nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(copy) })
}

/// Returns the meaning of an error. A process loses its handles before its end can be seen.
fn of_ended(process: BorrowedHandle<'_>, error: io::Error) -> io::Error {
    let is_ending = error.raw_os_error() == Some(ERROR_ACCESS_DENIED as i32);
    if is_ending || is_signalled(process) {
        return io::ErrorKind::BrokenPipe.into();
    }
    wrong("the announced handle does not exist")
}

fn wrong(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

// Channels whose two ends are both in this process.

/// The pairs by the names of their pipes. The names are random, so a name identifies its pipe.
static LOCAL_PAIRS: Mutex<BTreeMap<PipeName, Weak<LocalPair>>> = Mutex::new(BTreeMap::new());

type PipeName = Vec<u32>;

#[derive(Debug)]
struct LocalPair {
    name: PipeName,
    is_complete: AtomicBool,
    /// The handles in transit to each end.
    queues: [Mutex<VecDeque<Handle>>; 2],
}

/// One of the two ends.
#[derive(Debug)]
struct PairEnd {
    pair: Arc<LocalPair>,
    at: usize,
}

impl LocalPair {
    /// Registers a new end. `None` if the name of its pipe is unknown.
    fn begin(file: &OwnedHandle) -> Option<PairEnd> {
        let name = name_of(file)?;
        let queues = Default::default();
        let pair = Arc::new(LocalPair { name: name.clone(), is_complete: false.into(), queues });
        local_pairs().insert(name, Arc::downgrade(&pair));
        Some(PairEnd { pair, at: 0 })
    }

    /// Returns the other end, if the first one was created in this process.
    fn join(file: &OwnedHandle) -> Option<PairEnd> {
        let name = name_of(file)?;
        let known = local_pairs().get(&name).and_then(Weak::upgrade);
        let pair = known.filter(|it| !it.is_complete.swap(true, Ordering::SeqCst))?;
        Some(PairEnd { pair, at: 1 })
    }
}

impl Drop for LocalPair {
    fn drop(&mut self) {
        local_pairs().remove(&self.name);
    }
}

impl PairEnd {
    /// Returns true if both ends are in this process.
    fn is_complete(&self) -> bool {
        self.pair.is_complete.load(Ordering::SeqCst)
    }

    fn give(&self, handles: Vec<Handle>) {
        self.queue(1 - self.at).extend(handles);
    }

    fn take(&self, count: usize) -> io::Result<Vec<Handle>> {
        let mut queue = self.queue(self.at);
        let received: Vec<Handle> = (0..count).map_while(|_| queue.pop_front()).collect();
        match received.len() == count {
            true => Ok(received),
            false => {
                let message = "the message announced handles that did not arrive";
                Err(io::Error::new(io::ErrorKind::InvalidData, message))
            }
        }
    }

    fn queue(&self, at: usize) -> MutexGuard<'_, VecDeque<Handle>> {
        let [first, second] = &self.pair.queues;
        let queue = if at == 0 { first } else { second };
        // The list is consistent at any time.
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn local_pairs() -> MutexGuard<'static, BTreeMap<PipeName, Weak<LocalPair>>> {
    // As above.
    LOCAL_PAIRS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the name of a pipe, which is the same at both ends.
fn name_of(file: &OwnedHandle) -> Option<PipeName> {
    // The length in bytes, then the name. Our names are short.
    let mut buffer: PipeName = vec![0; 128];
    let room = size_of_val(buffer.as_slice()) as u32;
    // SAFETY: an open handle, and a live buffer of that size with the alignment that the class requires.
    let known = unsafe {
        let to = buffer.as_mut_ptr().cast();
        GetFileInformationByHandleEx(file.as_raw_handle(), FileNameInfo, to, room)
    };
    (known != 0 && buffer.first().is_some_and(|bytes| *bytes > 0)).then_some(buffer)
}

// The user of this process.

/// Returns the user's SID as text: `S-1-5-21-...`. Empty if it is unknown.
pub(super) fn user() -> String {
    identifier().unwrap_or_default()
}

fn identifier() -> io::Result<String> {
    let mut token = ptr::null_mut();
    // SAFETY: no arguments; a pseudo handle, which is not closed.
    let own = unsafe { GetCurrentProcess() };
    // SAFETY: this process, and a live place.
    let opened = unsafe { OpenProcessToken(own, TOKEN_QUERY, &raw mut token) };
    if opened == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: opened by the call above, and owned by nobody else.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    // Aligned like the struct, with space for the longest SID after it.
    let mut buffer = [0_u64; 32];
    let (to, room, mut length) = (buffer.as_mut_ptr(), size_of_val(&buffer) as u32, 0);
    // SAFETY: an open token, a live buffer of that size and a live number.
    let known = unsafe {
        GetTokenInformation(token.as_raw_handle(), TokenUser, to.cast(), room, &raw mut length)
    };
    if known == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in by the call above.
    let user = unsafe { buffer.as_ptr().cast::<TOKEN_USER>().read() };
    let mut text = ptr::null_mut();
    // SAFETY: a SID in the live buffer, and a live place.
    if unsafe { ConvertSidToStringSidW(user.User.Sid, &raw mut text) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a text that ends with a zero; nothing after that is read.
    let letter = |at: usize| unsafe { text.wrapping_add(at).read() };
    let length = (0..).take_while(|at| letter(*at) != 0).count();
    // SAFETY: as many as were counted.
    let wide = unsafe { std::slice::from_raw_parts(text, length) };
    let identifier = OsString::from_wide(wide).to_string_lossy().into_owned();
    // SAFETY: allocated by the call above, for the caller to free.
    unsafe { LocalFree(text.cast()) };
    Ok(identifier)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn some_file() -> Handle {
        Handle::from(File::open(std::env::current_exe().unwrap()).unwrap())
    }

    fn kind_of(result: io::Result<Vec<Handle>>) -> io::ErrorKind {
        result.unwrap_err().kind()
    }

    #[test]
    fn child_gets_handles_and_can_name_only_its_own() {
        let mut command = Command::new("cmd");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Wait for its prompt: a starting process would open handles with these numbers again.
        let mut prompt = [0];
        while prompt != *b">" {
            child.stdout.as_mut().unwrap().read_exact(&mut prompt).unwrap();
        }
        let process = copy_of(child.as_raw_handle(), false).unwrap();
        let mut peer =
            PeerProcess::Child { process, id: child.id(), confirmed: Confirmed::default() };
        let files = [some_file(), some_file()];
        assert_eq!(peer.give(&files).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(kind_of(peer.take(&[4])), io::ErrorKind::InvalidData);
        // The other end is in another process.
        peer.confirm(child.id() + 4);
        assert!(!peer.carries_handles() && peer.give(&files).is_err());
        peer.confirm(child.id());
        let numbers = peer.give(&files).unwrap().numbers;
        assert_eq!(peer.take(&numbers).unwrap().len(), 2);
        // They were removed from the child.
        assert_eq!(kind_of(peer.take(&numbers)), io::ErrorKind::InvalidData);
        // Numbers that are no handles, and pseudo handles.
        let own_process = u64::MAX;
        let own_thread = u64::MAX - 1;
        for number in [0, 1, 6, 1 << 31, 1 << 32, own_process, own_thread, u64::MAX - 3] {
            assert_eq!(kind_of(peer.take(&[number])), io::ErrorKind::InvalidData, "{number:#x}");
        }
        let numbers = peer.give(&files).unwrap().numbers;
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(kind_of(peer.take(&numbers)), io::ErrorKind::BrokenPipe);
        assert_eq!(peer.give(&files).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn each_side_announces_its_process_once() {
        let mut parent = PeerProcess::parent();
        assert_eq!(parent.introduction(), None);
        parent.confirm(process::id() + 4);
        assert_eq!((parent.introduction(), parent.carries_handles()), (None, false));
        parent.confirm(process::id());
        assert_eq!((parent.introduction(), parent.carries_handles()), (Some(process::id()), true));
        assert_eq!(parent.introduction(), None);
        // Handles sent by a child exist until the parent takes them.
        let given = parent.give(&[some_file()]).unwrap();
        let number = number_of(given.lent[0].as_raw_handle()) as u64;
        assert_eq!(given.numbers, [number]);
        std::mem::forget(given.lent);
        assert_eq!(parent.take(&[number]).unwrap().len(), 1);
    }
}
