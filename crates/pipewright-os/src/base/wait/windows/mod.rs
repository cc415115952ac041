//! Overlapped transfers with a common event, and one wait for that event and all other handles.
//!
//! No read is left to the kernel when a wait returns: a read that is not done is cancelled, and the
//! cancel is waited for. So a slot can be taken out or dropped between two waits, and the kernel
//! never writes to a freed buffer. A write is left to the kernel. The pipe end owns it and its
//! bytes, because a cancelled write does not report how much of it was read.

pub(super) mod handles;
pub(super) mod registered;
#[cfg(test)]
mod tests;
mod timeout;
pub(super) mod transfers;

use std::io;
use std::time::{Duration, Instant};

use super::Slot;
use handles::{Handles, handle_of, is_unwaitable};
use timeout::Timeout;
use transfers::Transfers;

/// The interval between two checks of a pipe that is not overlapped.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(5);

pub(super) fn wait(slots: &mut [Slot<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    let is_idle = |slot: &Slot<'_>| {
        let is_transfer = matches!(slot, Slot::Read(..) | Slot::Write(..));
        !is_transfer && !is_unwaitable(slot) && handle_of(slot).is_none()
    };
    if deadline.is_none() && slots.iter().all(is_idle) {
        // This wait could never end.
        return Ok(0);
    }
    let mut transfers = Transfers::new(slots)?;
    let mut handles = Handles::new(slots, &transfers)?;
    let mut timeout = Timeout::at(deadline);
    loop {
        let done = transfers.advance(slots) + complete_unwaitable(slots);
        let needs_check = transfers.needs_check() || slots.iter().any(is_unwaitable);
        let next_check = needs_check.then(|| Instant::now() + CHECK_INTERVAL);
        let limit = if done > 0 { timeout.immediate() } else { timeout.next(next_check) };
        let waited = handles.wait(slots, limit);
        let done = done + *waited.as_ref().unwrap_or(&0);
        if done > 0 || waited.is_err() || timeout.is_over() {
            // Also after an error: bytes that were read must not be lost.
            let done = done + transfers.stop(slots);
            return waited.map(|_| done);
        }
    }
}

/// Completes the slots of events that no handle reports, if those have happened. Returns their
/// number.
fn complete_unwaitable(slots: &mut [Slot<'_>]) -> usize {
    slots.iter_mut().map(|slot| usize::from(slot.complete_if_happened())).sum()
}
