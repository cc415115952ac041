//! Enlarges a pipe that its reader keeps finding full.
//!
//! A 64 KiB pipe makes reader and writer take turns every 64 KiB; 1 MiB moves a third more bytes
//! a second. But pipe buffers are charged to the user, and a user past `pipe-user-pages-soft`
//! (64 MiB by default, pipe(7)) gets two-page pipes from then on in *every* program. So this
//! process lends itself at most [`BUDGET_BYTES`] in all, and takes them back when a reader goes.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The size of an enlarged pipe: the default of `/proc/sys/fs/pipe-max-size`.
const LARGE_BYTES: usize = 1 << 20;

/// How many bytes in a row, each read filled to its end, mean that the writer is ahead.
const AHEAD_BYTES: usize = 256 << 10;

/// Reads smaller than this say more about the caller's buffer than about the pipe.
const TELLING_READ_BYTES: usize = 4 << 10;

/// What all enlarged pipes of this process may hold together.
const BUDGET_BYTES: usize = 16 << 20;

static LENT_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What one reader has seen of its pipe.
#[derive(Debug, Default)]
pub(super) struct Growth {
    full_in_a_row_bytes: AtomicUsize,
    settled: AtomicBool,
    lent: AtomicBool,
}

impl Growth {
    /// Notes that a read of at most `room` bytes brought `count`.
    pub(super) fn note(&self, fd: &OwnedFd, count: usize, room: usize) {
        if self.settled.load(Ordering::Relaxed) || room < TELLING_READ_BYTES {
            return;
        }
        // A whole default pipe in one read counts as full even where the buffer was larger.
        if count < room && count < (64 << 10) {
            self.full_in_a_row_bytes.store(0, Ordering::Relaxed);
            return;
        }
        let full = self.full_in_a_row_bytes.fetch_add(count, Ordering::Relaxed) + count;
        if full >= AHEAD_BYTES && !self.settled.swap(true, Ordering::Relaxed) {
            self.enlarge(fd);
        }
    }

    /// For a pipe whose size somebody chose.
    pub(super) fn never() -> Growth {
        let growth = Growth::default();
        growth.settled.store(true, Ordering::Relaxed);
        growth
    }

    fn enlarge(&self, fd: &OwnedFd) {
        let lent = LENT_BYTES.fetch_add(LARGE_BYTES, Ordering::Relaxed);
        // Ignored: a socket, a pipe-max-size below ours or a user past the soft limit only means
        // that the pipe stays as it is.
        if lent + LARGE_BYTES <= BUDGET_BYTES && set_size(fd).is_ok() {
            self.lent.store(true, Ordering::Relaxed);
        } else {
            LENT_BYTES.fetch_sub(LARGE_BYTES, Ordering::Relaxed);
        }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        if *self.lent.get_mut() {
            LENT_BYTES.fetch_sub(LARGE_BYTES, Ordering::Relaxed);
        }
    }
}

#[cfg(target_os = "linux")]
fn set_size(fd: &OwnedFd) -> rustix::io::Result<()> {
    if rustix::pipe::fcntl_getpipe_size(fd)? >= LARGE_BYTES {
        // Somebody else has enlarged it; setting the size would shrink it.
        return Err(rustix::io::Errno::BUSY);
    }
    rustix::pipe::fcntl_setpipe_size(fd, LARGE_BYTES).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn set_size(_: &OwnedFd) -> rustix::io::Result<()> {
    // Only Linux lets a pipe be resized.
    Err(rustix::io::Errno::NOTSUP)
}
