//! A two-way named pipe with overlapped calls.
//!
//! A read is always in progress, into a buffer of the end. A write is in progress while the pipe has no room
//! for it, from another buffer of the end. Each has an event, which is set when bytes can be received or sent.
//! A [`wait`](crate::base::wait) waits for these events.
//!
//! A handle is a number that is valid in one process. The bytes in the pipe are therefore divided into packets
//! that name the handles of their bytes (`packets.rs`). The numbers are created in `handle_transfer.rs`.

mod connect;
mod handle_transfer;
mod packets;
mod reads;
mod user;
mod writes;

use std::io::{self, IoSlice};
use std::os::windows::io::{BorrowedHandle, FromRawHandle as _, OwnedHandle};
use std::ptr;
use std::sync::Arc;

use super::receive_buffer::ReceiveBuffer;
use super::{Arrived, Blocking, ChannelEnd, MOST_HANDLES, not_inherited};
use crate::base::handle::{Handle, inheritable};
use crate::base::pipe::duplex;
use crate::base::wake::EventSource;
use crate::process::child::ChildHandle;
use connect::LocalPair;
use handle_transfer::PeerProcess;
use packets::{Announced, Decoder, NextItem};
use reads::{ChannelReader, ReadResult};
pub(super) use user::user;
use writes::ChannelWriter;

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
