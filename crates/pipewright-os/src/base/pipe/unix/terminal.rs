//! Reads and writes at this process's side of a pseudo-terminal.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

/// The most bytes that the kernel keeps of the child's output: the buffer of the terminal and that of its line
/// discipline. (On Linux 8 KiB and 4 KiB; no call reports the sum.)
pub(super) const MOST_BUFFERED_BYTES: usize = 64 << 10;

/// The size from which a read makes another one likely to find bytes: half of what one returns at most.
const LARGE_READ_BYTES: usize = 2 << 10;

/// True once this process has given a terminal away, in blocking mode.
static MAY_BLOCK: AtomicBool = AtomicBool::new(false);

/// Records that an open file is about to be put into blocking mode.
pub(super) fn note_blocking() {
    MAY_BLOCK.store(true, Ordering::SeqCst);
}

/// Reads available bytes; 0 at the end: no process has the other side open any more.
///
/// One call returns 4 KiB at most, so a child that writes fast is read by several.
pub(super) fn read(fd: BorrowedFd<'_>, into: &mut [MaybeUninit<u8>]) -> Result<usize, Errno> {
    let mut all = read_once(fd, into)?;
    let mut last = all;
    while last >= LARGE_READ_BYTES && !MAY_BLOCK.load(Ordering::SeqCst) {
        let Some(room) = into.get_mut(all..).filter(|room| !room.is_empty()) else { break };
        last = match rustix::io::read(fd, &mut *room) {
            Ok((filled, _)) => filled.len(),
            // No bytes, or the end, which the next read finds again.
            Err(_) => 0,
        };
        all += last;
    }
    Ok(all)
}

/// Makes one read.
///
/// Linux reports the end as `EIO`, and can do so too early. `n_tty_read` finds no bytes, then asks if the other side
/// has been closed; a child that writes and exits in between is closed with its bytes unread. So the end counts only if
/// a second read, which begins after the close, finds nothing either.
fn read_once(fd: BorrowedFd<'_>, into: &mut [MaybeUninit<u8>]) -> Result<usize, Errno> {
    for _ in 0..2 {
        match rustix::io::read(fd, &mut *into) {
            Err(Errno::IO) => {}
            done => return done.map(|(filled, _)| filled.len()),
        }
    }
    Ok(0)
}

/// Writes what fits. No process has the other side open: `EPIPE`, as for a pipe, not `EIO`.
pub(super) fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    match rustix::io::write(fd, bytes) {
        Err(Errno::IO) => Err(Errno::PIPE),
        done => done,
    }
}
