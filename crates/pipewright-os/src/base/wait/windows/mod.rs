//! Overlapped transfers, one event for all of them, and one wait for that and every other handle.
//!
//! No read is left to the kernel when a wait returns: what is not done is cancelled, and the cancel is
//! waited for. So a slot can be taken out or dropped at any time in between, and the kernel never writes
//! to a buffer that has gone. A write is left to it, by the end of the pipe, which has its bytes: of one
//! that is cancelled nobody can tell how much was read.

pub(super) mod handles;
mod pause;
pub(super) mod registered;
#[cfg(test)]
mod tests;
pub(super) mod transfers;

use std::io;
use std::time::{Duration, Instant};

use super::Slot;
use handles::{Handles, handle_of, is_unwaitable, look};
use pause::Pause;
use transfers::Transfers;

/// How often a pipe is looked at that cannot overlap.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(5);

pub(super) fn wait(slots: &mut [Slot<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    let is_idle = |slot: &Slot<'_>| {
        let is_transfer = matches!(slot, Slot::Read(..) | Slot::Write(..));
        !is_transfer && !is_unwaitable(slot) && handle_of(slot).is_none()
    };
    if deadline.is_none() && slots.iter().all(is_idle) {
        // Nothing could ever end this wait.
        return Ok(0);
    }
    let mut transfers = Transfers::of(slots)?;
    let mut handles = Handles::of(slots, &transfers)?;
    let mut pause = Pause::until(deadline);
    loop {
        let done = transfers.go_on(slots) + look_at_all(slots);
        let has_to_look = transfers.has_to_look() || slots.iter().any(is_unwaitable);
        let look_at = has_to_look.then(|| Instant::now() + LOOK_PAUSE);
        let limit = if done > 0 { pause.none() } else { pause.next(look_at) };
        let waited = handles.wait(slots, limit);
        let done = done + *waited.as_ref().unwrap_or(&0);
        if done > 0 || waited.is_err() || pause.is_over() {
            // Also after an error: what has been read must not be lost.
            let done = done + transfers.stop(slots);
            return waited.map(|_| done);
        }
    }
}

/// Completes the events that no handle reports, if they have happened. Returns the number of those.
fn look_at_all(slots: &mut [Slot<'_>]) -> usize {
    slots.iter_mut().map(|slot| usize::from(look(slot))).sum()
}
