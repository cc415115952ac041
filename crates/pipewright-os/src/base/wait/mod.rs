//! Waits for bytes, exits and wake-ups from several sources, on one thread.
//!
//! The interface is completion: a caller passes a buffer and gets it back with bytes in it, not a
//! report that a read might now succeed. `poll(2)` can imitate that in a few lines; overlapped I/O
//! could imitate readiness only with hidden buffers. So the loop above this module is the same on
//! every OS.

mod descriptor;
#[cfg(feature = "tokio")]
mod task;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::base::pipe::{PipeReader, PipeWriter};
use crate::base::wake::{EventSource, WaitEvent};
#[cfg(unix)]
use unix as imp;

pub use descriptor::WaitDescriptor;
#[cfg(feature = "tokio")]
pub(crate) use task::current_runtime;
#[cfg(feature = "tokio")]
pub use task::{Watch, check_runtime};

/// The spare capacity that an empty buffer gets: the output of an ordinary program fits, and a
/// silent stream takes no memory.
pub const FIRST_READ_BYTES: usize = 16 << 10;

/// A source to wait for, or the result of that wait.
///
/// A caller keeps an array of slots, fills in its requests, calls [`any`], and takes out
/// (`std::mem::take`) the slots that are done. The next call still waits for a slot that is not
/// done; taking out or dropping the slot abandons its wait. The slot owns its pipe and buffer
/// meanwhile, so that memory the kernel may still write to cannot be freed.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Slot<'a> {
    /// Nothing.
    #[default]
    Off,
    /// Reads into the spare capacity of the buffer. A buffer without any gets [`FIRST_READ_BYTES`]
    /// when there is something to read (Windows: at the first wait).
    Read(PipeReader, Vec<u8>),
    /// Done: the pipe, the buffer, and the number of bytes appended to it; 0 is the end of the
    /// stream.
    ReadDone(PipeReader, Vec<u8>, io::Result<usize>),
    /// Writes the bytes from that offset on, as much as fits at once.
    Write(PipeWriter, Arc<Vec<u8>>, usize),
    /// Done: the number of bytes written.
    WriteDone(PipeWriter, Arc<Vec<u8>>, io::Result<usize>),
    /// Waits for the event.
    Event(&'a dyn WaitEvent),
    /// Waits for the event, which the slot owns.
    Owned(Arc<dyn WaitEvent>),
    /// Waits until the event's source can take more: the end of a channel that was full.
    Room(&'a dyn WaitEvent),
    /// Done: the event has happened.
    EventDone,
}

impl Slot<'_> {
    /// Returns the slot without its lifetime if it owns all that it needs. A slot that borrows
    /// becomes [`Slot::Off`]: fill it in again before the next wait.
    #[must_use]
    pub fn detach(self) -> Slot<'static> {
        match self {
            Slot::Read(pipe, buffer) => Slot::Read(pipe, buffer),
            Slot::ReadDone(pipe, buffer, result) => Slot::ReadDone(pipe, buffer, result),
            Slot::Write(pipe, bytes, from) => Slot::Write(pipe, bytes, from),
            Slot::WriteDone(pipe, bytes, result) => Slot::WriteDone(pipe, bytes, result),
            Slot::Owned(event) => Slot::Owned(event),
            Slot::EventDone => Slot::EventDone,
            Slot::Off | Slot::Event(_) | Slot::Room(_) => Slot::Off,
        }
    }

    /// Returns the event that the slot waits for, and its source.
    fn event(&self) -> Option<(&dyn WaitEvent, EventSource<'_>)> {
        match self {
            Slot::Event(event) => Some((*event, event.source())),
            Slot::Owned(event) => Some((&**event, event.source())),
            Slot::Room(event) => Some((*event, event.room())),
            _ => None,
        }
    }

    /// Completes the slot if no system object reports its event and the event has happened.
    fn complete_if_happened(&mut self) -> bool {
        let happened = self.event().is_some_and(|(event, source)| {
            matches!(source, EventSource::Unwaitable(_)) && event.has_happened()
        });
        if happened {
            *self = Slot::EventDone;
        }
        happened
    }
}

/// Reserves [`FIRST_READ_BYTES`] for a buffer without spare capacity.
fn make_room(buffer: &mut Vec<u8>) -> io::Result<()> {
    if buffer.len() == buffer.capacity() {
        buffer.try_reserve_exact(FIRST_READ_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
    }
    Ok(())
}

/// Waits until at least one slot is done or the deadline has passed.
///
/// Returns the number of slots that are done: 0 at the deadline, or if no slot can ever be done.
///
/// # Platform
/// Linux: `ppoll`, then one `read` or `write` for each ready slot. macOS: `poll`, which has a
/// resolution of milliseconds; a process is a kqueue there, which can be polled. A device that
/// cannot be polled (`/dev/tty`; a terminal by its own name can) counts as ready, and the call on
/// it may block.
///
/// Windows: overlapped `ReadFile` and `WriteFile` for all slots, then one `WaitForMultipleObjects` for their common
/// event, every process and flag, and the events of channel ends; beyond 61 of them `RegisterWaitForSingleObject`.
/// Before the return, a read that is not done is cancelled (`CancelIoEx`), and the cancel is waited for; a read that
/// finished first counts, so that no byte is lost. A write that is not done stays pending, and the next wait or write
/// of the same bytes to that end continues it, so that no byte is written twice. It is cancelled only when the end is
/// dropped or other bytes are written to it; a reader may have taken part of it by then. A console is waited for and
/// its keys are taken (`ReadConsoleInputW`); while it edits lines it is checked every 5 ms for one that is complete. A
/// deadline less than one clock tick away gets a timer. An end that is not overlapped is checked every 5 ms
/// (`PeekNamedPipe`), or written to by a thread of its own, with the same rules (`CancelSynchronousIo`).
///
/// # Errors
/// The errors of the wait itself (`ENOMEM`, no more events available); an error of one source is in
/// its slot.
#[doc(alias = "poll")]
#[doc(alias = "WaitForMultipleObjects")]
pub fn any(slots: &mut [Slot<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    imp::wait(slots, deadline)
}

/// Waits with `poll(2)`, then makes one call for each ready descriptor.
#[cfg(unix)]
mod unix {
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::time::{Duration, Instant};
    use std::{io, mem};

    use super::{Slot, make_room};
    use crate::base::pipe::PipeReader;
    use crate::base::poll::{FIRST_PAUSE, LONGEST_PAUSE, is_lack_of_memory};
    use crate::base::wake::EventSource;

    /// The number of entries on the stack. One child has at most five sources, so the usual wait
    /// allocates nothing.
    const INLINE_SLOTS: usize = 8;

    /// An entry that poll(2) ignores, because of its descriptor.
    const IGNORED: libc::pollfd = libc::pollfd { fd: -1, events: 0, revents: 0 };

    pub(super) fn wait(slots: &mut [Slot<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        if slots.len() <= INLINE_SLOTS {
            let mut polled = [IGNORED; INLINE_SLOTS];
            wait_in(slots, &mut polled[..slots.len()], deadline)
        } else {
            wait_in(slots, &mut vec![IGNORED; slots.len()], deadline)
        }
    }

    fn wait_in(
        slots: &mut [Slot<'_>],
        polled: &mut [libc::pollfd],
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        let mut waiting = false;
        let mut needs_check = false;
        for (slot, entry) in slots.iter().zip(polled.iter_mut()) {
            *entry = match source(slot) {
                Some(Polled::Fd(fd, events)) => {
                    libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
                }
                Some(Polled::Unpollable) => {
                    needs_check = true;
                    IGNORED
                }
                None => continue,
            };
            waiting = true;
        }
        if !waiting && deadline.is_none() {
            // This wait could never end.
            return Ok(0);
        }
        loop {
            let next_check = needs_check.then(|| Instant::now() + CHECK_INTERVAL);
            let until = [deadline, next_check].into_iter().flatten().min();
            let in_time = poll(polled, until, poll_most)?;
            let mut done = 0;
            for (slot, entry) in slots.iter_mut().zip(polled.iter()) {
                if entry.revents != 0 {
                    done += usize::from(complete(slot, entry.revents));
                } else if needs_check {
                    done += usize::from(slot.complete_if_happened());
                }
            }
            // A ready descriptor without a completed slot is a spurious wake-up, which poll(2) permits.
            let over =
                !in_time && (!needs_check || deadline.is_some_and(|end| Instant::now() >= end));
            if done > 0 || over {
                return Ok(done);
            }
        }
    }

    /// The interval between two checks of an event that cannot be polled: the exit of a child, without
    /// pidfds and threads.
    pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(5);

    /// The entry of a slot for poll(2), if the slot is not done.
    pub(super) enum Polled<'a> {
        Fd(BorrowedFd<'a>, libc::c_short),
        /// No descriptor reports the event.
        Unpollable,
    }

    pub(super) fn source<'a>(slot: &'a Slot<'_>) -> Option<Polled<'a>> {
        match slot {
            Slot::Read(pipe, _) => Some(Polled::Fd(pipe.fd_for_wait(), libc::POLLIN)),
            Slot::Write(pipe, ..) => Some(Polled::Fd(pipe.fd_for_wait(), libc::POLLOUT)),
            _ => slot.event().map(|(_, source)| match source {
                EventSource::Readable(fd) => Polled::Fd(fd, libc::POLLIN),
                EventSource::Writable(fd) => Polled::Fd(fd, libc::POLLOUT),
                EventSource::Unwaitable(_) => Polled::Unpollable,
            }),
        }
    }

    /// Makes the call that a ready slot waits for. `false`: the slot was not ready after all.
    fn complete(slot: &mut Slot<'_>, events: libc::c_short) -> bool {
        let (next, done) = match mem::take(slot) {
            Slot::Read(pipe, buffer) if events == libc::POLLHUP && !pipe.is_terminal() => {
                // POLLHUP alone: the last writer has gone, and no byte is left. (For POLLNVAL the read
                // returns the error: macOS reports it for devices that it cannot poll, see poll(2),
                // BUGS. For a terminal Linux asks first for bytes, and then for the hang-up, so bytes
                // may have come in between.)
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
        make_room(buffer)?;
        pipe.read_ready(buffer)
    }

    /// Waits with a function that waits once. A lack of memory fails everything that is waited for together, and is
    /// gone the next moment: the wait is tried again, with growing pauses that last 1 s in all.
    fn poll(
        polled: &mut [libc::pollfd],
        deadline: Option<Instant>,
        mut once: impl FnMut(&mut [libc::pollfd], Option<Duration>) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let mut pause = FIRST_PAUSE;
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match once(polled, left) {
                Ok(0) if left.is_none_or(|left| left > LONGEST_WAIT) => {}
                Ok(count) => return Ok(count > 0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_lack_of_memory(&error) && pause <= LONGEST_PAUSE => {
                    // Ignored: a wait for nothing needs no memory, and a signal may cut it short.
                    let _ = poll_once(&mut [], Some(left.map_or(pause, |left| left.min(pause))));
                    pause *= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Polls once, with each descriptor once if the system needs that.
    fn poll_most(polled: &mut [libc::pollfd], left: Option<Duration>) -> io::Result<usize> {
        // macOS reports an event of a descriptor to one of its entries only.
        if NAMES_EACH_ONCE && has_duplicates(polled) {
            return poll_each_once(polled, left);
        }
        match poll_once(polled, left) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                poll_each_once(polled, left)
            }
            done => done,
        }
    }

    const NAMES_EACH_ONCE: bool = !cfg!(target_os = "linux");

    /// Returns true if a descriptor has several entries, or perhaps if there are very many.
    fn has_duplicates(polled: &[libc::pollfd]) -> bool {
        const MOST_COMPARED: usize = 64;
        let again = |(at, entry): (usize, &libc::pollfd)| {
            entry.fd >= 0 && polled.iter().take(at).any(|earlier| earlier.fd == entry.fd)
        };
        polled.len() > MOST_COMPARED || polled.iter().enumerate().any(again)
    }

    /// Polls each descriptor once. poll(2) refuses more entries than this process may have descriptors,
    /// even if some are ignored or name the same descriptor. The number of different descriptors cannot
    /// be larger.
    #[cold]
    fn poll_each_once(polled: &mut [libc::pollfd], left: Option<Duration>) -> io::Result<usize> {
        let number = |entry: &libc::pollfd| usize::try_from(entry.fd).ok();
        // The index of each descriptor's entry. A table, because a sort adds 7 KB of code to every
        // program.
        let mut places =
            vec![usize::MAX; polled.iter().filter_map(number).max().map_or(0, |it| it + 1)];
        let mut each: Vec<libc::pollfd> = Vec::new();
        for entry in polled.iter() {
            let Some(place) = number(entry).and_then(|number| places.get_mut(number)) else {
                continue;
            };
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
            // poll(2) reports these three without a request.
            entry.revents = found & (entry.events | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL);
        }
        Ok(count)
    }

    /// The longest single wait. A deadline further away takes several, so that no conversion to a C
    /// type can overflow.
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
        // and the signal mask is null.
        let count = unsafe {
            libc::ppoll(
                polled.as_mut_ptr(),
                polled.len() as libc::nfds_t,
                timeout,
                std::ptr::null(),
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    #[cfg(not(target_os = "linux"))]
    fn poll_once(polled: &mut [libc::pollfd], left: Option<Duration>) -> io::Result<usize> {
        // Rounded up: poll(2) counts milliseconds, and an early return would make this loop spin.
        let timeout = left.map_or(-1, |left| {
            left.min(LONGEST_WAIT).as_nanos().div_ceil(1_000_000) as libc::c_int
        });
        // SAFETY: the entries are a live slice of that length.
        let count =
            unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    #[cfg(all(test, not(miri)))]
    mod tests {
        use std::os::fd::AsRawFd as _;
        use std::os::unix::net::UnixStream;

        use super::*;

        #[test]
        fn a_wait_without_memory_is_tried_again_for_a_while() {
            for error in [libc::ENOMEM, libc::EAGAIN] {
                let mut calls = 0;
                let mut failing = |times: u32| {
                    calls = 0;
                    let start = Instant::now();
                    let result = poll(&mut [], None, |_, _| {
                        calls += 1;
                        match calls <= times {
                            true => Err(io::Error::from_raw_os_error(error)),
                            false => Ok(1),
                        }
                    });
                    (result.map_err(|error| error.raw_os_error()), calls, start.elapsed())
                };
                let (result, calls, elapsed) = failing(3);
                assert_eq!((result, calls), (Ok(true), 4));
                assert!(elapsed >= Duration::from_millis(7));
                let (result, calls, elapsed) = failing(u32::MAX);
                assert_eq!((result, calls), (Err(Some(error)), 11));
                assert!(elapsed >= Duration::from_secs(1));
            }
        }

        #[test]
        fn a_wait_without_memory_does_not_outlast_its_deadline() {
            let (mut calls, over) = (0, Instant::now());
            let failing = |_: &mut [_], _| {
                calls += 1;
                Err(io::Error::from_raw_os_error(libc::ENOMEM))
            };
            assert!(poll(&mut [], Some(over), failing).is_err());
            assert_eq!(calls, 11);
        }

        #[test]
        fn an_event_reaches_all_entries_of_its_descriptor() {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let of = |stream: &UnixStream, events| libc::pollfd {
                fd: stream.as_raw_fd(),
                events,
                revents: 0,
            };
            let mut polled = [
                of(&ours, libc::POLLIN),
                IGNORED,
                of(&theirs, libc::POLLIN),
                of(&ours, libc::POLLOUT),
                of(&ours, libc::POLLIN),
            ];
            assert!(has_duplicates(&polled));
            assert!(!has_duplicates(&polled[..3]));
            assert!(!has_duplicates(&[IGNORED, IGNORED]));
            assert_eq!(rustix::io::write(&theirs, b"x"), Ok(1));
            assert_eq!(poll_each_once(&mut polled, None).unwrap(), 1);
            let found = polled.map(|entry| entry.revents);
            assert_eq!(found, [libc::POLLIN, 0, 0, libc::POLLOUT, libc::POLLIN]);
        }
    }
}
