//! Enlarges a pipe that its reader keeps finding full.
//!
//! With a 64 KiB pipe, reader and writer take turns every 64 KiB; with 1 MiB they move a third more
//! bytes per second. But pipe buffers are charged to the user, and a user past
//! `pipe-user-pages-soft` (64 MiB by default, pipe(7)) gets two-page pipes from then on in *every*
//! program. So the enlarged pipes of this process hold at most [`BUDGET_BYTES`] together. A reader
//! that is dropped returns its share.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The size of an enlarged pipe: the default of `/proc/sys/fs/pipe-max-size`.
const LARGE_BYTES: usize = 1 << 20;

/// The number of bytes in full reads after which the writer counts as faster. Those of other reads count against it twice: the
/// reader meets a writer that it has just woken, and finds little, between two full pipes.
const FULL_BYTES: usize = 256 << 10;

/// The smallest read that counts. A smaller one says more about the caller's buffer than about the
/// pipe.
const MIN_READ_BYTES: usize = 4 << 10;

/// The limit for the sum of all enlarged pipes of this process.
const BUDGET_BYTES: usize = 16 << 20;

static ENLARGED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The state of one reader: the full reads so far, and the decision.
#[derive(Debug, Default)]
pub(super) struct Growth {
    full_bytes: AtomicUsize,
    is_decided: AtomicBool,
    is_charged: AtomicBool,
}

impl Growth {
    /// Records a read of at most `room` bytes that returned `count`.
    pub(super) fn record_read(&self, fd: &OwnedFd, count: usize, room: usize) {
        if self.is_decided.load(Ordering::Relaxed) || room < MIN_READ_BYTES {
            return;
        }
        // A read of a whole default pipe counts as full even if the buffer was larger.
        if count < room && count < (64 << 10) {
            let full = self.full_bytes.load(Ordering::Relaxed);
            self.full_bytes.store(full.saturating_sub(2 * count), Ordering::Relaxed);
            return;
        }
        let full = self.full_bytes.fetch_add(count, Ordering::Relaxed) + count;
        if full >= FULL_BYTES && !self.is_decided.swap(true, Ordering::Relaxed) {
            self.enlarge(fd);
        }
    }

    /// Returns a state that never enlarges, for a pipe of a chosen size.
    pub(super) fn disabled() -> Growth {
        let growth = Growth::default();
        growth.is_decided.store(true, Ordering::Relaxed);
        growth
    }

    fn enlarge(&self, fd: &OwnedFd) {
        let enlarged = ENLARGED_BYTES.fetch_add(LARGE_BYTES, Ordering::Relaxed);
        // Ignored: a socket, a lower pipe-max-size or a user past the soft limit only means that
        // the pipe keeps its size.
        if enlarged + LARGE_BYTES <= BUDGET_BYTES && set_size(fd).is_ok() {
            self.is_charged.store(true, Ordering::Relaxed);
        } else {
            ENLARGED_BYTES.fetch_sub(LARGE_BYTES, Ordering::Relaxed);
        }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        if *self.is_charged.get_mut() {
            ENLARGED_BYTES.fetch_sub(LARGE_BYTES, Ordering::Relaxed);
        }
    }
}

#[cfg(target_os = "linux")]
fn set_size(fd: &OwnedFd) -> rustix::io::Result<()> {
    if rustix::pipe::fcntl_getpipe_size(fd)? >= LARGE_BYTES {
        // Another process has enlarged it; setting the size would shrink it.
        return Err(rustix::io::Errno::BUSY);
    }
    rustix::pipe::fcntl_setpipe_size(fd, LARGE_BYTES).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn set_size(_: &OwnedFd) -> rustix::io::Result<()> {
    // Only Linux lets a pipe be resized.
    Err(rustix::io::Errno::NOTSUP)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Returns the size of a new pipe after these reads of a buffer of 128 KiB, repeated 20 times.
    fn size_after(reads: &[usize]) -> rustix::io::Result<usize> {
        let (reader, _writer) = rustix::pipe::pipe()?;
        let growth = Growth::default();
        for count in reads.repeat(20) {
            growth.record_read(&reader, count, 128 << 10);
        }
        rustix::pipe::fcntl_getpipe_size(&reader)
    }

    #[test]
    fn a_writer_that_fills_the_pipe_again_and_again_gets_a_large_one() {
        assert_eq!(size_after(&[64 << 10]), Ok(LARGE_BYTES));
        // What a reader finds that has just woken the writer.
        assert_eq!(size_after(&[64 << 10, 4 << 10, 16 << 10]), Ok(LARGE_BYTES));
    }

    #[test]
    fn a_writer_that_is_slower_keeps_its_pipe() {
        assert_ne!(size_after(&[8 << 10]), Ok(LARGE_BYTES));
        assert_ne!(size_after(&[64 << 10, 20 << 10, 20 << 10]), Ok(LARGE_BYTES));
    }
}
