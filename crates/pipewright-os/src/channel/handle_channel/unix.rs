//! A pair of Unix stream sockets.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{SocketAddr, UnixStream};

use rustix::event::PollFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags,
    SocketType, sendmsg, shutdown, socketpair,
};

use super::{Arrived, Blocking, ChannelEnd, MOST_HANDLES, not_inherited};
use crate::base::handle::{Handle, HandleKind, copy_of_number, is_close_on_exec};
use crate::base::pipe::{SOCKET_BYTES_AFTER_POLL, is_ready_now, wait_for};
use crate::base::wake::EventSource;
use crate::process::child::ChildHandle;

#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sending: Sending,
}

/// The reason why a send does not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// `MSG_DONTWAIT`, which belongs to the call. The mode belongs to the open file description, which another process
    /// may share.
    Flagged,
    /// `O_NONBLOCK`, on an end that is ours alone.
    OwnMode,
    /// `poll` first, and then no more than fits: the mode is not ours to change.
    AfterPoll,
}

/// macOS ignores `MSG_DONTWAIT` in a send (XNU's `sosend` looks at `SS_NBIO` only): a send on a blocking socket would
/// wait for the other side, which may wait for us.
const OURS: Sending = if cfg!(target_os = "linux") { Sending::Flagged } else { Sending::OwnMode };
const FOREIGN: Sending =
    if cfg!(target_os = "linux") { Sending::Flagged } else { Sending::AfterPoll };

impl Socket {
    /// Takes an end that no other code uses.
    fn ours(fd: OwnedFd) -> io::Result<Socket> {
        if OURS == Sending::OwnMode {
            rustix::io::ioctl_fionbio(&fd, true)?;
        }
        Ok(Socket { fd, sending: OURS })
    }
}

pub(super) fn pair() -> io::Result<(Socket, Handle)> {
    let (ours, theirs) = ends()?;
    Ok((Socket::ours(ours)?, Handle::from(theirs)))
}

#[cfg(target_os = "linux")]
fn ends() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// macOS lacks `SOCK_CLOEXEC` (see [`crate::base::pipe`]) and `MSG_NOSIGNAL`, so both are set on each end afterwards.
#[cfg(not(target_os = "linux"))]
fn ends() -> io::Result<(OwnedFd, OwnedFd)> {
    let ends = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    for end in [&ends.0, &ends.1] {
        rustix::io::fcntl_setfd(end, FdFlags::CLOEXEC)?;
        rustix::net::sockopt::set_socket_nosigpipe(end, true)?;
    }
    Ok(ends)
}

pub(super) fn socket(handle: Handle) -> io::Result<Socket> {
    if handle.kind()? != HandleKind::Socket {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor is not a socket"));
    }
    let fd = OwnedFd::from(handle);
    // As for both ends of a pair.
    #[cfg(not(target_os = "linux"))]
    rustix::net::sockopt::set_socket_nosigpipe(&fd, true)?;
    Ok(Socket { fd, sending: FOREIGN })
}

/// Checks that the number is that of an inherited channel end, and of the one with that ID.
pub(super) fn check(number: RawFd, id: Option<&str>) -> io::Result<()> {
    let goes_at_exec = is_close_on_exec(number).map_err(|_| io::ErrorKind::NotFound)?;
    let end = end_of_a_pair(number).filter(|_| !goes_at_exec).ok_or_else(not_inherited)?;
    match id {
        Some(id) if id_of(end.as_fd()).is_some_and(|found| found != id) => Err(not_inherited()),
        _ => Ok(()),
    }
}

/// Returns an ID that no other open socket has.
pub(super) fn id(handle: &Handle) -> Option<String> {
    id_of(handle.as_fd())
}

fn id_of(fd: BorrowedFd<'_>) -> Option<String> {
    let stat = rustix::fs::fstat(fd).ok()?;
    Some(format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Takes an end that was [checked](check).
pub(super) fn inherited(number: RawFd) -> io::Result<Socket> {
    // SAFETY: the variable says that the descriptor was passed to this process under that number, and this is
    // the first code to take it. As the parent passes it, it is one end of a pair that survived an exec. Only a pair
    // that other code of this process created without FD_CLOEXEC, under the number in a stale variable, looks the
    // same.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Socket::ours(fd)
}

/// Returns a copy of a stream socket whose ends have no name, so that it was not connected to an address.
fn end_of_a_pair(number: RawFd) -> Option<UnixStream> {
    // Examined through a copy, because the number may belong to other code.
    let copy = copy_of_number(number).map(UnixStream::from).ok()?;
    let is_unnamed = |address: io::Result<SocketAddr>| address.is_ok_and(|it| it.is_unnamed());
    let is_one = is_unnamed(copy.local_addr())
        && is_unnamed(copy.peer_addr())
        && rustix::net::sockopt::socket_type(&copy) == Ok(SocketType::STREAM);
    is_one.then_some(copy)
}

pub(super) fn user() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

/// Does nothing: handles reach any process that has the other end.
pub(super) fn set_worker(_: &mut Socket, _: &ChildHandle) -> io::Result<()> {
    Ok(())
}

pub(super) fn carries_handles(_: &Socket) -> bool {
    true
}

/// Returns 0: the kernel holds all bytes that it accepted.
#[inline]
pub(super) fn unsent(_: &Socket) -> usize {
    0
}

#[inline]
pub(super) fn settle(_: &mut Socket) -> io::Result<()> {
    Ok(())
}

pub(super) fn end_sending(socket: &Socket) {
    // Ignored: the other side is gone.
    let _ = shutdown(&socket.fd, Shutdown::Write);
}

/// Returns true if there is something that was not received, and nothing more can come.
pub(super) fn end_both(socket: &Socket) -> bool {
    // Ignored: the other side is gone, and then nothing more can come either.
    let _ = shutdown(&socket.fd, Shutdown::Both);
    // An error is no proof that there is nothing.
    rustix::io::ioctl_fionread(&socket.fd).map_or(true, |bytes| bytes > 0)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(target_os = "linux")]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
/// The socket has `SO_NOSIGPIPE`.
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: SendFlags = SendFlags::empty();

fn first_bytes<'a>(parts: &'a [IoSlice<'_>], mut most: usize) -> Vec<IoSlice<'a>> {
    let mut first = Vec::new();
    for part in parts {
        let piece = part.get(..most).unwrap_or(part);
        most -= piece.len();
        first.push(IoSlice::new(piece));
        if most == 0 {
            break;
        }
    }
    first
}

/// Sends once. Returns 0 if there is no room.
pub(super) fn send(
    end: &mut ChannelEnd,
    parts: &[IoSlice<'_>],
    handles: &[Handle],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_HANDLES))];
    let fds: Vec<BorrowedFd<'_>> = handles.iter().map(Handle::as_fd).collect();
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let Socket { fd, sending } = &end.socket;
    let first;
    let (parts, flags) = match sending {
        Sending::Flagged => (parts, NO_SIGNAL | SendFlags::DONTWAIT),
        Sending::OwnMode => (parts, NO_SIGNAL),
        Sending::AfterPoll if !is_ready_now(fd.as_fd(), PollFlags::OUT) => return Ok(0),
        Sending::AfterPoll => {
            first = first_bytes(parts, SOCKET_BYTES_AFTER_POLL);
            (&first[..], NO_SIGNAL)
        }
    };
    loop {
        end.calls.send += 1;
        match sendmsg(fd, parts, &mut control, flags) {
            Ok(count) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            // Both sides exist, but the kernel has no memory at the moment.
            Err(Errno::NOBUFS) if cfg!(target_os = "macos") => return Ok(0),
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(target_os = "linux")]
const RECEIVE: libc::c_int = libc::MSG_CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const RECEIVE: libc::c_int = 0;

/// Space for the handles of one message, with the alignment of the kernel's headers.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

const CONTROL_BYTES: usize = {
    let bytes = MOST_HANDLES * size_of::<RawFd>();
    // SAFETY: arithmetic on a number.
    unsafe { libc::CMSG_SPACE(bytes as u32) as usize }
};

/// Receives once: into the caller's buffer first, then into our own.
pub(super) fn receive(
    end: &mut ChannelEnd,
    mut caller: Option<(&mut Vec<u8>, usize)>,
    wait: Blocking,
) -> io::Result<Arrived> {
    let ChannelEnd { socket, receive_buffer, handles, refuses_handles, ended, calls, .. } = end;
    let ahead = receive_buffer.room()?;
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2];
    let wanted = caller.as_ref().map_or(0, |(_, count)| *count);
    if let Some((to, _)) = &mut caller {
        let spare = to.spare_capacity_mut();
        parts[0].iov_base = spare.as_mut_ptr().cast();
        parts[0].iov_len = wanted.min(spare.len());
    }
    let spare = ahead.spare_capacity_mut();
    parts[1].iov_base = spare.as_mut_ptr().cast();
    parts[1].iov_len = spare.len().min(super::READ_AHEAD_BYTES);
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: plain numbers and pointers; none is used while it is null.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    let flags = if wait == Blocking::No { RECEIVE | libc::MSG_DONTWAIT } else { RECEIVE };
    let count = loop {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        calls.receive += 1;
        // SAFETY: an open socket, and a message whose parts and control data are live buffers of the lengths
        // that it names, mutably borrowed here.
        let count = unsafe { libc::recvmsg(socket.fd.as_raw_fd(), &raw mut message, flags) };
        if let Ok(count) = usize::try_from(count) {
            break count;
        }
        let error = io::Error::last_os_error();
        if lost_handles(&error) {
            return Err(Errno::MFILE.into());
        }
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            // Its mode is non-blocking.
            io::ErrorKind::WouldBlock if wait == Blocking::Yes => {
                wait_for(socket.fd.as_fd(), PollFlags::IN)?;
            }
            io::ErrorKind::WouldBlock => return Ok(Arrived::Nothing),
            io::ErrorKind::ConnectionReset => {
                // The other side ended without reading everything.
                *ended = true;
                return Ok(Arrived::End);
            }
            _ => return Err(error),
        }
    };
    // Owned before anything can fail.
    let received = handles_of(&message);
    if *refuses_handles && !received.is_empty() {
        return Err(ChannelEnd::refusal(received));
    }
    if count == 0 {
        *ended = true;
        return Ok(Arrived::End);
    }
    let to_caller = count.min(parts[0].iov_len);
    if let Some((to, _)) = caller {
        let length = to.len() + to_caller;
        // SAFETY: the call has filled that many bytes after the length.
        unsafe { to.set_len(length) };
    }
    let length = ahead.len() + count - to_caller;
    // SAFETY: as above, for the second part, which is filled after the first.
    unsafe { ahead.set_len(length) };
    let is_cut = message.msg_flags & libc::MSG_CTRUNC != 0;
    if is_cut && received.len() < MOST_HANDLES {
        // The message had space for more, so this process reached its limit.
        return Err(Errno::MFILE.into());
    }
    if is_cut || handles.len() + received.len() > MOST_HANDLES {
        let message = "more than 64 handles in one message";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    handles.extend(received);
    Ok(Arrived::Bytes { to_caller, ahead: count - to_caller })
}

/// Returns true if the handles of a message were closed because this process may not have more. macOS has an error for
/// it and the next call returns the bytes; Linux has `MSG_CTRUNC`.
fn lost_handles(error: &io::Error) -> bool {
    cfg!(target_os = "macos") && error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error())
}

#[cfg(test)]
impl ChannelEnd {
    /// Makes an end send as one whose mode is not ours, on a system without `MSG_DONTWAIT`.
    pub(super) fn send_after_poll(&mut self) {
        self.socket.sending = Sending::AfterPoll;
    }
}

pub(super) fn lacks_room_for_handles(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

fn handles_of(message: &libc::msghdr) -> Vec<Handle> {
    let mut handles = Vec::new();
    // SAFETY: a message filled in by the kernel, whose control data are live.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, and therefore inside the control data, with its alignment.
        let libc::cmsghdr { cmsg_len, cmsg_level, cmsg_type, .. } = unsafe { *header };
        if (cmsg_level, cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: arithmetic on a number.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            // The type differs between systems.
            let length: usize = cmsg_len as _;
            let count = length.saturating_sub(head) / size_of::<RawFd>();
            // SAFETY: a header inside the control data.
            let data: *const RawFd = unsafe { libc::CMSG_DATA(header) }.cast();
            for at in 0..count {
                // SAFETY: inside the data of the header, according to its length.
                let place = unsafe { data.add(at) };
                // SAFETY: as above; possibly unaligned.
                let fd = unsafe { place.read_unaligned() };
                // SAFETY: created by the call for this process, and owned by nobody else.
                let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                #[cfg(not(target_os = "linux"))]
                // Ignored: the call cannot fail for an open descriptor.
                let _ = rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC);
                handles.push(Handle::from(fd));
            }
        }
        // SAFETY: the message and one of its headers.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    handles
}

pub(super) fn arrival(socket: &Socket) -> EventSource<'_> {
    EventSource::Readable(socket.as_fd())
}

pub(super) fn room(socket: &Socket) -> EventSource<'_> {
    EventSource::Writable(socket.as_fd())
}
