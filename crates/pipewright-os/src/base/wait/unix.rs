//! `poll(2)`, and the one call that each ready descriptor was waiting for.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::{FIRST_READ_BYTES, Slot};
use crate::base::event::Source;
use crate::base::pipe::PipeReader;

/// One child has at most five sources, so the usual wait allocates nothing.
const INLINE_SLOTS: usize = 8;

/// poll(2) leaves out entries with this descriptor.
const OFF: libc::pollfd = libc::pollfd { fd: -1, events: 0, revents: 0 };

pub(super) fn wait(slots: &mut [Slot<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    if slots.len() <= INLINE_SLOTS {
        let mut polled = [OFF; INLINE_SLOTS];
        wait_in(slots, &mut polled[..slots.len()], deadline)
    } else {
        wait_in(slots, &mut vec![OFF; slots.len()], deadline)
    }
}

fn wait_in(
    slots: &mut [Slot<'_>],
    polled: &mut [libc::pollfd],
    deadline: Option<Instant>,
) -> io::Result<usize> {
    let mut waiting = false;
    let mut looking = false;
    for (slot, entry) in slots.iter().zip(polled.iter_mut()) {
        *entry = match source(slot) {
            Some(Polled::Fd(fd, events)) => libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 },
            Some(Polled::Never) => {
                looking = true;
                OFF
            }
            None => continue,
        };
        waiting = true;
    }
    if !waiting && deadline.is_none() {
        // Nothing could ever end this wait.
        return Ok(0);
    }
    loop {
        let look_at = looking.then(|| Instant::now() + LOOK_PAUSE);
        let until = [deadline, look_at].into_iter().flatten().min();
        let in_time = poll(polled, until)?;
        let mut done = 0;
        for (slot, entry) in slots.iter_mut().zip(polled.iter()) {
            if entry.revents != 0 {
                done += usize::from(complete(slot, entry.revents));
            } else if looking {
                done += usize::from(look(slot));
            }
        }
        // Ready and yet nothing done is a spurious wake-up, of which poll(2) warns.
        let over = !in_time && (!looking || deadline.is_some_and(|end| Instant::now() >= end));
        if done > 0 || over {
            return Ok(done);
        }
    }
}

/// The time between two looks at an event that cannot be polled: the exit of a child, without pidfds and threads.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// Completes an event that could not be polled, if it has happened.
fn look(slot: &mut Slot<'_>) -> bool {
    let happened = slot.event().is_some_and(|(event, source)| {
        matches!(source, Source::Unwaitable(_)) && event.has_happened()
    });
    if happened {
        *slot = Slot::EventDone;
    }
    happened
}

/// The entry of poll(2) for a slot that is not done.
pub(super) enum Polled<'a> {
    Fd(BorrowedFd<'a>, libc::c_short),
    /// No descriptor reports it.
    Never,
}

pub(super) fn source<'a>(slot: &'a Slot<'_>) -> Option<Polled<'a>> {
    match slot {
        Slot::Read(pipe, _) => Some(Polled::Fd(pipe.fd_for_wait(), libc::POLLIN)),
        Slot::Write(pipe, ..) => Some(Polled::Fd(pipe.fd_for_wait(), libc::POLLOUT)),
        _ => slot.event().map(|(_, source)| match source {
            Source::Readable(fd) => Polled::Fd(fd, libc::POLLIN),
            Source::Writable(fd) => Polled::Fd(fd, libc::POLLOUT),
            Source::Unwaitable(_) => Polled::Never,
        }),
    }
}

/// Makes the call that a ready slot waits for. `false`: it was not ready after all.
fn complete(slot: &mut Slot<'_>, events: libc::c_short) -> bool {
    let (next, done) = match mem::take(slot) {
        Slot::Read(pipe, buffer) if events == libc::POLLHUP => {
            // Alone: the last writer has gone, and nothing is left. (POLLNVAL is for the read to
            // explain: macOS says so of devices that it cannot poll, see poll(2), BUGS.)
            (Slot::ReadDone(pipe, buffer, Ok(0)), true)
        }
        Slot::Read(pipe, mut buffer) => match read(&pipe, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                (Slot::Read(pipe, buffer), false)
            }
            result => (Slot::ReadDone(pipe, buffer, result), true),
        },
        Slot::Write(pipe, bytes, from) => {
            match pipe.write_ready(bytes.get(from..).unwrap_or(&[])) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    (Slot::Write(pipe, bytes, from), false)
                }
                result => (Slot::WriteDone(pipe, bytes, result), true),
            }
        }
        Slot::Event(_) | Slot::Owned(_) | Slot::Room(_) => (Slot::EventDone, true),
        done => (done, false),
    };
    *slot = next;
    done
}

fn read(pipe: &PipeReader, buffer: &mut Vec<u8>) -> io::Result<usize> {
    if buffer.len() == buffer.capacity() {
        buffer.try_reserve_exact(FIRST_READ_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
    }
    pipe.read_ready(buffer)
}

/// Waits until one descriptor is readable, or until that time. `false`: it is not.
pub(crate) fn poll_readable(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<bool> {
    let entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    poll(&mut [entry], deadline)
}

fn poll(polled: &mut [libc::pollfd], deadline: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let count = match poll_once(polled, left) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                poll_each_once(polled, left)
            }
            done => done,
        };
        match count {
            Ok(0) if left.is_none_or(|left| left > LONGEST_WAIT) => {}
            Ok(count) => return Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// For more entries than this process may have descriptors, which poll(2) refuses however many of them are left out
/// or name the same one. Of different descriptors there cannot be more.
#[cold]
fn poll_each_once(polled: &mut [libc::pollfd], left: Option<Duration>) -> io::Result<usize> {
    let number = |entry: &libc::pollfd| usize::try_from(entry.fd).ok();
    // Where each descriptor has its entry. A table, as a sort is 7 KB of code in every program.
    let mut places =
        vec![usize::MAX; polled.iter().filter_map(number).max().map_or(0, |it| it + 1)];
    let mut each: Vec<libc::pollfd> = Vec::new();
    for entry in polled.iter() {
        let Some(place) = number(entry).and_then(|number| places.get_mut(number)) else { continue };
        match each.get_mut(*place) {
            Some(there) => there.events |= entry.events,
            None => {
                *place = each.len();
                each.push(*entry);
            }
        }
    }
    let count = poll_once(&mut each, left)?;
    for entry in polled {
        let place = number(entry).and_then(|number| places.get(number));
        let found = place.and_then(|place| each.get(*place)).map_or(0, |found| found.revents);
        // Those are told of without being asked for (poll(2)).
        entry.revents = found & (entry.events | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL);
    }
    Ok(count)
}

/// A deadline further away is waited for in pieces: no conversion to a C type can then overflow.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(target_os = "linux")]
fn poll_once(polled: &mut [libc::pollfd], left: Option<Duration>) -> io::Result<usize> {
    let timeout = left.map(|left| {
        let left = left.min(LONGEST_WAIT);
        libc::timespec {
            tv_sec: left.as_secs() as _,
            tv_nsec: libc::c_long::from(left.subsec_nanos()),
        }
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the entries are a live slice of that length, the timeout is null or a live timespec,
    // and no signal mask is given.
    let count = unsafe {
        libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout, std::ptr::null())
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

#[cfg(not(target_os = "linux"))]
fn poll_once(polled: &mut [libc::pollfd], left: Option<Duration>) -> io::Result<usize> {
    // Rounded up: poll(2) counts milliseconds, and an early return would make this loop spin.
    let timeout = left
        .map_or(-1, |left| left.min(LONGEST_WAIT).as_nanos().div_ceil(1_000_000) as libc::c_int);
    // SAFETY: the entries are a live slice of that length.
    let count = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
