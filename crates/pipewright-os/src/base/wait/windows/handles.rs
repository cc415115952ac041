//! The waits for handles that are no transfers: processes and flags, in any number.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle};
use std::ptr;
use std::sync::Arc;

use windows_sys::Win32::Foundation::{HANDLE, WAIT_FAILED};
use windows_sys::Win32::System::Threading::{Sleep, WaitForMultipleObjects};

use super::super::Slot;
use super::registered::RegisteredWait;
use super::timeout::WaitLimit;
use super::transfers::Transfers;
use crate::base::wake::Wake;
use crate::base::wake::{EventSource, WaitEvent};

/// The limit of one wait (`MAXIMUM_WAIT_OBJECTS`).
pub(in crate::base::wait) const MAX_HANDLES: usize = 64;
/// The handles beside those of slots: the transfers' event, the timer, and the event of the
/// overflow.
const OWN_HANDLES: usize = 3;
const DIRECT_HANDLES: usize = MAX_HANDLES - OWN_HANDLES;

pub(super) struct Handles {
    /// The handle and index of each slot; a handle stays open until its slot is done.
    of_slots: Vec<(HANDLE, usize)>,
    transfers: Option<HANDLE>,
    overflow: Option<Overflow>,
    /// Dropped after the overflow: a slot that is done releases its event, and a handle must not be
    /// closed while it is registered.
    _owned: Vec<Arc<dyn WaitEvent>>,
}

impl Handles {
    /// Collects the handles. While this lives, only [`wait`](Self::wait) may change the slots, and
    /// the transfers must outlive it.
    pub(super) fn new(slots: &[Slot<'_>], transfers: &Transfers) -> io::Result<Handles> {
        let of_slot = |(place, slot)| {
            let handle = handle_of(slot).or_else(|| transfers.event_of(place));
            let handle = handle.or_else(|| console_of(slot))?;
            Some((handle.as_raw_handle(), place))
        };
        let of_slots: Vec<_> = slots.iter().enumerate().filter_map(of_slot).collect();
        let overflow = match of_slots.get(DIRECT_HANDLES..) {
            Some(rest @ [_, ..]) => Some(Overflow::register(rest)?),
            _ => None,
        };
        let owned = match overflow {
            Some(_) => slots.iter().filter_map(owned_of).cloned().collect(),
            None => Vec::new(),
        };
        let transfers = transfers.event().map(|event| event.as_raw_handle());
        Ok(Handles { of_slots, transfers, overflow, _owned: owned })
    }

    /// Waits until a handle is signalled or the time is over, and completes every slot whose handle
    /// is.
    pub(super) fn wait(
        &mut self,
        slots: &mut [Slot<'_>],
        limit: WaitLimit<'_>,
    ) -> io::Result<usize> {
        let direct = self.of_slots.get(..DIRECT_HANDLES).unwrap_or(&self.of_slots);
        let mut all = [ptr::null_mut(); MAX_HANDLES];
        let own = [
            self.overflow.as_ref().map(|overflow| overflow.event.as_handle().as_raw_handle()),
            self.transfers,
            limit.timer.map(|timer| timer.as_raw_handle()),
        ];
        let wanted = direct.iter().map(|(handle, _)| *handle).chain(own.into_iter().flatten());
        let mut count = 0;
        for (place, handle) in all.iter_mut().zip(wanted) {
            *place = handle;
            count += 1;
        }
        let first = wait_for_any(&all[..count], limit.ms)?;
        let Some(first) = first else { return Ok(0) };
        let mut done = complete_signalled(slots, direct, first)?;
        if let (Some(overflow), Some(rest)) = (&self.overflow, self.of_slots.get(DIRECT_HANDLES..))
        {
            for rest in rest.chunks(MAX_HANDLES) {
                done += complete_signalled(slots, rest, 0)?;
            }
            if done == 0 && overflow.event.is_raised() {
                // A flag was lowered again. A registration reports only once, so register again.
                self.overflow = Some(Overflow::register(rest)?);
            }
        }
        Ok(done)
    }
}

/// Completes every slot from that index on whose handle is signalled. The slots before are known
/// not to be.
fn complete_signalled(
    slots: &mut [Slot<'_>],
    handles: &[(HANDLE, usize)],
    first: usize,
) -> io::Result<usize> {
    let mut done = 0;
    let handles = handles.get(first..).unwrap_or_default();
    for_each_signalled(handles.iter().map(|(handle, _)| *handle), |at| {
        if let Some(slot) = handles.get(at).and_then(|(_, place)| slots.get_mut(*place)) {
            done += usize::from(complete_event(slot));
        }
    })?;
    Ok(done)
}

/// Calls `found` for each signalled handle among as many as one wait takes.
pub(in crate::base::wait) fn for_each_signalled(
    handles: impl Iterator<Item = HANDLE>,
    mut found: impl FnMut(usize),
) -> io::Result<()> {
    let mut raw = [ptr::null_mut(); MAX_HANDLES];
    let mut count = 0;
    for (place, handle) in raw.iter_mut().zip(handles) {
        *place = handle;
        count += 1;
    }
    let mut from = 0;
    while let Some(rest) = raw.get(from..count).filter(|rest| !rest.is_empty()) {
        let Some(next) = wait_for_any(rest, 0)? else { break };
        found(from + next);
        from += next + 1;
    }
    Ok(())
}

pub(in crate::base::wait) fn complete_event(slot: &mut Slot<'_>) -> bool {
    let is_event = slot.event().is_some();
    if is_event {
        *slot = Slot::EventDone;
    }
    is_event
}

/// Returns the handle that a slot waits for, if that is no transfer.
pub(in crate::base::wait) fn handle_of<'a>(slot: &'a Slot<'_>) -> Option<BorrowedHandle<'a>> {
    match slot.event()?.1 {
        EventSource::Signalled(handle) => Some(handle),
        EventSource::Unwaitable(_) => None,
    }
}

/// Returns the console that a slot reads. When it is signalled, the read may still find no text.
fn console_of<'a>(slot: &'a Slot<'_>) -> Option<BorrowedHandle<'a>> {
    match slot {
        Slot::Read(pipe, _) => pipe.console(),
        _ => None,
    }
}

/// Returns true if the slot waits for an event that no handle reports.
pub(in crate::base::wait) fn is_unwaitable(slot: &Slot<'_>) -> bool {
    matches!(slot.event(), Some((_, EventSource::Unwaitable(_))))
}

fn owned_of<'a>(slot: &'a Slot<'_>) -> Option<&'a Arc<dyn WaitEvent>> {
    match slot {
        Slot::Owned(event) => Some(event),
        _ => None,
    }
}

/// Returns the first signalled handle; `None`: none was signalled in that time.
pub(in crate::base::wait) fn wait_for_any(
    handles: &[HANDLE],
    ms: u32,
) -> io::Result<Option<usize>> {
    if handles.is_empty() {
        // Nothing to wait for but the time.
        // SAFETY: an integer argument.
        unsafe { Sleep(ms) };
        return Ok(None);
    }
    // SAFETY: open handles, and their number.
    let found = unsafe { WaitForMultipleObjects(handles.len() as u32, handles.as_ptr(), 0, ms) };
    if found == WAIT_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Other values are the time-out. (And abandoned mutexes, which do not occur here.)
    Ok(Some(found as usize).filter(|found| *found < handles.len()))
}

/// Handles beyond the limit of one wait: the system's own threads wait for them, and set one event.
struct Overflow {
    /// Dropped before the event. Not queried: each handle is checked itself.
    _registered: Vec<RegisteredWait>,
    event: Arc<Wake>,
}

impl Overflow {
    fn register(handles: &[(HANDLE, usize)]) -> io::Result<Overflow> {
        let event = Arc::new(Wake::new()?);
        let register = |(handle, _): &(HANDLE, usize)| {
            // SAFETY: the slots' borrows, `Handles::_owned` and the transfers hold it open until
            // this is dropped.
            let handle = unsafe { BorrowedHandle::borrow_raw(*handle) };
            // SAFETY: as above.
            unsafe { RegisteredWait::new(handle, &event) }
        };
        let registered = handles.iter().map(register).collect::<io::Result<_>>()?;
        Ok(Overflow { _registered: registered, event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::handle::inheritable;
    use std::os::windows::io::OwnedHandle;
    use windows_sys::Win32::System::Threading::INFINITE;

    #[derive(Debug)]
    struct Exited(OwnedHandle);

    impl WaitEvent for Exited {
        fn source(&self) -> EventSource<'_> {
            EventSource::Signalled(self.0.as_handle())
        }

        fn has_happened(&self) -> bool {
            crate::base::wake::is_signalled(self.0.as_handle())
        }
    }

    #[test]
    fn the_handle_of_an_exited_process_is_closed_after_its_wait_is_unregistered() {
        let wake = Wake::new().unwrap();
        let mut child = std::process::Command::new("cmd").args(["/c", "exit"]).spawn().unwrap();
        let exit = Arc::new(Exited(child.as_handle().try_clone_to_owned().unwrap()));
        let raw = exit.0.as_raw_handle();
        let mut slots: Vec<_> = (0..DIRECT_HANDLES).map(|_| Slot::Event(&wake)).collect();
        slots.push(Slot::Owned(exit));
        let mut handles = Handles::new(&slots, &Transfers::new(&slots).unwrap()).unwrap();
        assert_eq!(handles.wait(&mut slots, WaitLimit { ms: INFINITE, timer: None }).unwrap(), 1);
        assert!(matches!(slots.last(), Some(Slot::EventDone)));
        // SAFETY: only queried; the query fails if the handle is closed.
        let still = unsafe { BorrowedHandle::borrow_raw(raw) };
        assert!(inheritable(still).is_ok(), "closed while the system waits for it");
        drop(handles);
        child.wait().unwrap();
    }
}
