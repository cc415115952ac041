//! A wait for one thing with `poll(2)`, and the rule for a lack of memory that every wait has.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec};

/// The first pause of a wait that had no memory. Each one is twice as long as the one before.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The last pause: all of them last 1 s.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(512);

/// Returns true if the kernel had no memory for the entries. macOS says that with `EAGAIN`, see poll(2).
pub(super) fn is_lack_of_memory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN))
}

/// Polls as rustix does; without memory, tries again as [`wait`](super::wait) does. A signal ends it.
pub(crate) fn poll_again(
    polled: &mut [PollFd<'_>],
    limit: Option<&Timespec>,
) -> rustix::io::Result<usize> {
    let mut pause = FIRST_PAUSE;
    loop {
        match rustix::event::poll(polled, limit) {
            Err(error) if is_lack_of_memory(&error.into()) && pause <= LONGEST_PAUSE => {
                let time = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
                // Ignored: a wait for nothing needs no memory, and a signal may cut it short.
                let _ = rustix::event::poll(&mut [], Some(&time));
                pause *= 2;
            }
            done => return done,
        }
    }
}
