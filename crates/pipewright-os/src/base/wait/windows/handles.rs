//! Whatever is waited for beside the transfers: processes and flags, however many.

use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle};
use std::ptr;
use std::sync::Arc;

use windows_sys::Win32::Foundation::{HANDLE, WAIT_FAILED};
use windows_sys::Win32::System::Threading::{Sleep, WaitForMultipleObjects};

use super::super::Slot;
use super::pause::Limit;
use super::registered::Registered;
use super::transfers::Transfers;
use crate::base::event::{Event, Source};
use crate::base::wake::Wake;

/// As many as one wait takes (`MAXIMUM_WAIT_OBJECTS`).
pub(in crate::base::wait) const MOST_HANDLES: usize = 64;
/// Beside those of slots: the transfers' event, the timer, and the event of those left over.
const OWN_HANDLES: usize = 3;
const DIRECT_HANDLES: usize = MOST_HANDLES - OWN_HANDLES;

pub(super) struct Handles {
    /// Of the slots, with their places; each stays open until its slot is done.
    of_slots: Vec<(HANDLE, usize)>,
    transfers: Option<HANDLE>,
    left_over: Option<LeftOver>,
    /// Dropped after those left over: a slot that is done gives up its event, and a handle must not
    /// be closed while it is registered.
    _owned: Vec<Arc<dyn Event>>,
}

impl Handles {
    /// The slots must not be changed but by [`wait`](Self::wait) while this lives, which the transfers
    /// outlive.
    pub(super) fn of(slots: &[Slot<'_>], transfers: &Transfers) -> io::Result<Handles> {
        let of_slot = |(place, slot)| {
            let handle = handle_of(slot).or_else(|| transfers.event_of(place))?;
            Some((handle.as_raw_handle(), place))
        };
        let of_slots: Vec<_> = slots.iter().enumerate().filter_map(of_slot).collect();
        let left_over = match of_slots.get(DIRECT_HANDLES..) {
            Some(rest @ [_, ..]) => Some(LeftOver::register(rest)?),
            _ => None,
        };
        let owned = match left_over {
            Some(_) => slots.iter().filter_map(owned_of).cloned().collect(),
            None => Vec::new(),
        };
        let transfers = transfers.event().map(|event| event.as_raw_handle());
        Ok(Handles { of_slots, transfers, left_over, _owned: owned })
    }

    /// Waits until a handle has come or the time is over, and marks every slot whose handle has.
    pub(super) fn wait(&mut self, slots: &mut [Slot<'_>], limit: Limit<'_>) -> io::Result<usize> {
        let direct = self.of_slots.get(..DIRECT_HANDLES).unwrap_or(&self.of_slots);
        let mut all = [ptr::null_mut(); MOST_HANDLES];
        let own = [
            self.left_over.as_ref().map(|left| left.event.as_handle().as_raw_handle()),
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
        let mut done = mark_from(slots, direct, first)?;
        if let (Some(left), Some(rest)) = (&self.left_over, self.of_slots.get(DIRECT_HANDLES..)) {
            for rest in rest.chunks(MOST_HANDLES) {
                done += mark_from(slots, rest, 0)?;
            }
            if done == 0 && left.event.is_raised() {
                // A flag that somebody has lowered again: it has been told of, once and for all.
                self.left_over = Some(LeftOver::register(rest)?);
            }
        }
        Ok(done)
    }
}

/// Marks every slot from there on whose handle has come. Those before have not.
fn mark_from(
    slots: &mut [Slot<'_>],
    handles: &[(HANDLE, usize)],
    first: usize,
) -> io::Result<usize> {
    let mut done = 0;
    let handles = handles.get(first..).unwrap_or_default();
    each_that_has_come(handles.iter().map(|(handle, _)| *handle), |at| {
        if let Some(slot) = handles.get(at).and_then(|(_, place)| slots.get_mut(*place)) {
            done += usize::from(mark(slot));
        }
    })?;
    Ok(done)
}

/// Finds those of the handles that have come, of which no more are looked at than one wait takes.
pub(in crate::base::wait) fn each_that_has_come(
    handles: impl Iterator<Item = HANDLE>,
    mut found: impl FnMut(usize),
) -> io::Result<()> {
    let mut raw = [ptr::null_mut(); MOST_HANDLES];
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

pub(in crate::base::wait) fn mark(slot: &mut Slot<'_>) -> bool {
    let is_event = slot.event().is_some();
    if is_event {
        *slot = Slot::EventDone;
    }
    is_event
}

/// What a slot waits for, where that is no transfer.
pub(in crate::base::wait) fn handle_of<'a>(slot: &'a Slot<'_>) -> Option<BorrowedHandle<'a>> {
    match slot.event()?.1 {
        Source::Signalled(handle) => Some(handle),
        Source::Unwaitable(_) => None,
    }
}

/// Returns true if the slot waits for an event that no handle reports.
pub(in crate::base::wait) fn is_unwaitable(slot: &Slot<'_>) -> bool {
    matches!(slot.event(), Some((_, Source::Unwaitable(_))))
}

/// Marks the slot if its event has no handle and has happened.
pub(in crate::base::wait) fn look(slot: &mut Slot<'_>) -> bool {
    let happened = slot.event().is_some_and(|(event, source)| {
        matches!(source, Source::Unwaitable(_)) && event.has_happened()
    });
    happened && mark(slot)
}

fn owned_of<'a>(slot: &'a Slot<'_>) -> Option<&'a Arc<dyn Event>> {
    match slot {
        Slot::Owned(event) => Some(event),
        _ => None,
    }
}

/// The first of the handles that has come; `None`: none has in that time.
pub(in crate::base::wait) fn wait_for_any(
    handles: &[HANDLE],
    ms: u32,
) -> io::Result<Option<usize>> {
    if handles.is_empty() {
        // There is nothing that a wait could be for.
        // SAFETY: a number.
        unsafe { Sleep(ms) };
        return Ok(None);
    }
    // SAFETY: open handles, and how many.
    let found = unsafe { WaitForMultipleObjects(handles.len() as u32, handles.as_ptr(), 0, ms) };
    if found == WAIT_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Beyond them is the time-out. (And mutexes that were abandoned, of which there are none.)
    Ok(Some(found as usize).filter(|found| *found < handles.len()))
}

/// Handles beyond the number that one wait takes: the system's own threads wait for them, and raise
/// one event.
struct LeftOver {
    /// Dropped before the event. Not asked: each handle is looked at itself.
    _registered: Vec<Registered>,
    event: Arc<Wake>,
}

impl LeftOver {
    fn register(handles: &[(HANDLE, usize)]) -> io::Result<LeftOver> {
        let event = Arc::new(Wake::new()?);
        let register = |(handle, _): &(HANDLE, usize)| {
            // SAFETY: the slots' borrows, `Handles::_owned` and the transfers hold it open until this is
            // dropped.
            let handle = unsafe { BorrowedHandle::borrow_raw(*handle) };
            // SAFETY: as above.
            unsafe { Registered::new(handle, &event) }
        };
        let registered = handles.iter().map(register).collect::<io::Result<_>>()?;
        Ok(LeftOver { _registered: registered, event })
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

    impl Event for Exited {
        fn source(&self) -> Source<'_> {
            Source::Signalled(self.0.as_handle())
        }

        fn has_happened(&self) -> bool {
            crate::base::wake::is_signalled(self.0.as_handle())
        }
    }

    #[test]
    fn a_process_that_has_come_is_let_go_after_it_is_unregistered() {
        let wake = Wake::new().unwrap();
        let mut child = std::process::Command::new("cmd").args(["/c", "exit"]).spawn().unwrap();
        let exit = Arc::new(Exited(child.as_handle().try_clone_to_owned().unwrap()));
        let raw = exit.0.as_raw_handle();
        let mut slots: Vec<_> = (0..DIRECT_HANDLES).map(|_| Slot::Event(&wake)).collect();
        slots.push(Slot::Owned(exit));
        let mut handles = Handles::of(&slots, &Transfers::of(&slots).unwrap()).unwrap();
        assert_eq!(handles.wait(&mut slots, Limit { ms: INFINITE, timer: None }).unwrap(), 1);
        assert!(matches!(slots.last(), Some(Slot::EventDone)));
        // SAFETY: only asked about; if it were closed that would be the answer.
        let still = unsafe { BorrowedHandle::borrow_raw(raw) };
        assert!(inheritable(still).is_ok(), "closed while the system waits for it");
        drop(handles);
        child.wait().unwrap();
    }
}
