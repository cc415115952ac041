//! Overlapped transfers with a common event, and one wait for that event and all other handles.
//!
//! No read is left to the kernel when a wait returns: a read that is not done is cancelled, and the
//! cancel is waited for. So a slot can be taken out or dropped between two waits, and the kernel
//! never writes to a freed buffer. A write is left to the kernel. The pipe end owns it and its
//! bytes, because a cancelled write does not report how much of it was read.

use std::ffi::c_void;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, mem, ptr};

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE, WAIT_FAILED};
use windows_sys::Win32::System::Threading::{
    CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, CreateWaitableTimerExW, INFINITE,
    RegisterWaitForSingleObject, SYNCHRONIZATION_SYNCHRONIZE, SetWaitableTimer, Sleep,
    TIMER_MODIFY_STATE, UnregisterWaitEx, WT_EXECUTEINWAITTHREAD, WT_EXECUTEONLYONCE,
    WaitForMultipleObjects,
};

use super::{Slot, make_room};
use crate::base::overlapped::OverlappedIo;
use crate::base::pipe::{
    MOST_READ_BYTES, WriteEnd, WriteRequest, WriterThread, map_read_result, map_write_result,
};
use crate::base::wake::{EventSource, WaitEvent, Wake};

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

// The waits for handles that are no transfers: processes and flags, in any number.

/// The limit of one wait (`MAXIMUM_WAIT_OBJECTS`).
pub(in crate::base::wait) const MAX_HANDLES: usize = 64;
/// The handles beside those of slots: the transfers' event, the timer, and the event of the
/// overflow.
const OWN_HANDLES: usize = 3;
const DIRECT_HANDLES: usize = MAX_HANDLES - OWN_HANDLES;

struct Handles {
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
    fn new(slots: &[Slot<'_>], transfers: &Transfers) -> io::Result<Handles> {
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
    fn wait(&mut self, slots: &mut [Slot<'_>], limit: WaitLimit<'_>) -> io::Result<usize> {
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

// The reads and writes of one wait.

struct Transfers {
    /// One for each slot. Dropped before the event, which the kernel may set until then.
    running: Vec<Option<Running>>,
    /// Set at the end of each transfer without an event of its own; `None`: there are no transfers.
    event: Option<Arc<Wake>>,
    /// The events of the writes that are left to the kernel.
    write_events: Vec<Option<Arc<Wake>>>,
    needs_check: bool,
}

#[derive(Debug)]
pub(in crate::base::wait) enum Running {
    /// The kernel reads.
    Operation(OverlappedIo),
    /// The kernel writes. The pipe end owns the write until it is done.
    Pending(Arc<WriteEnd>),
    /// The writer thread of the end writes.
    OnThread(ThreadWrite),
}

/// A write on the writer thread of that end.
#[derive(Debug)]
pub(in crate::base::wait) struct ThreadWrite(Arc<WriteEnd>);

impl Drop for ThreadWrite {
    fn drop(&mut self) {
        let _ = self.0.writer_thread().map(WriterThread::detach);
    }
}

impl Running {
    pub(in crate::base::wait) fn result(&self) -> Option<io::Result<usize>> {
        match self {
            Running::Operation(operation) => operation.result(),
            Running::Pending(end) => end.take_result(),
            Running::OnThread(ThreadWrite(end)) => {
                end.writer_thread().and_then(WriterThread::result)
            }
        }
    }

    /// Cancels a read. A write goes on: the next wait for the same bytes finds it.
    pub(in crate::base::wait) fn stop(&mut self) -> Option<io::Result<usize>> {
        match self {
            Running::Operation(operation) => operation.stop(),
            // The drop detaches a write on a thread.
            Running::Pending(_) | Running::OnThread(_) => self.result(),
        }
    }
}

impl Transfers {
    fn new(slots: &[Slot<'_>]) -> io::Result<Transfers> {
        if !slots.iter().any(|slot| matches!(slot, Slot::Read(..) | Slot::Write(..))) {
            let (running, write_events) = (Vec::new(), Vec::new());
            return Ok(Transfers { running, event: None, write_events, needs_check: false });
        }
        let running = slots.iter().map(|_| None).collect();
        let event = Some(Arc::new(Wake::new()?));
        let write_events = slots.iter().map(event_of_write).collect::<io::Result<_>>()?;
        Ok(Transfers { running, event, write_events, needs_check: false })
    }

    /// Returns the event of the write at that index.
    fn event_of(&self, place: usize) -> Option<BorrowedHandle<'_>> {
        let event = self.write_events.get(place)?.as_ref()?;
        Some(event.as_handle())
    }

    fn event(&self) -> Option<BorrowedHandle<'_>> {
        self.event.as_ref().map(|event| event.as_handle())
    }

    /// Returns true if there is a pipe that no event reports.
    fn needs_check(&self) -> bool {
        self.needs_check
    }

    /// Starts transfers that are not running, and completes slots whose transfer is done. Returns
    /// the number of completed slots.
    fn advance(&mut self, slots: &mut [Slot<'_>]) -> usize {
        let Some(event) = &self.event else { return 0 };
        // A transfer that finishes from here on sets the event again, or is found below: each start
        // resets it too.
        event.lower();
        let mut done = 0;
        self.needs_check = false;
        for (slot, running) in slots.iter_mut().zip(&mut self.running) {
            if running.is_some() || !is_transfer(slot) {
                continue;
            }
            match start(slot, event) {
                TransferStart::Running(started) => *running = Some(started),
                TransferStart::Done => done += 1,
                TransferStart::Retry => self.needs_check = true,
                TransferStart::Nothing => {}
            }
        }
        for (slot, running) in slots.iter_mut().zip(&mut self.running) {
            let Some(result) = running.as_ref().and_then(Running::result) else { continue };
            *running = None;
            match finish(slot, Some(result)) {
                true => done += 1,
                // Nothing was read: it is started again.
                false => event.raise(),
            }
        }
        done
    }

    /// Cancels the reads that are not done. Returns the number of transfers that are done after
    /// all.
    fn stop(&mut self, slots: &mut [Slot<'_>]) -> usize {
        let mut done = 0;
        for (slot, running) in slots.iter_mut().zip(&mut self.running) {
            if let Some(mut running) = running.take() {
                done += usize::from(finish(slot, running.stop()));
            }
        }
        done
    }
}

/// The outcome of starting a transfer.
pub(in crate::base::wait) enum TransferStart {
    Running(Running),
    /// The slot is done.
    Done,
    /// The transfer cannot be started, and has to be tried again.
    Retry,
    /// There is nothing to read, and a handle reports when there may be.
    Nothing,
}

fn is_transfer(slot: &Slot<'_>) -> bool {
    matches!(slot, Slot::Read(..) | Slot::Write(..))
}

pub(in crate::base::wait) fn start(slot: &mut Slot<'_>, event: &Arc<Wake>) -> TransferStart {
    match slot {
        Slot::Read(pipe, buffer) => {
            if let Err(error) = make_room(buffer) {
                return complete(slot, Err(error));
            }
            if !pipe.is_overlapped() {
                return read_now(slot);
            }
            let spare = buffer.spare_capacity_mut();
            let room = spare.len().min(MOST_READ_BYTES);
            // SAFETY: the slot owns the pipe and the buffer, and is not touched while this runs;
            // the read is stopped, or dropped, before the slot is returned and before the event is
            // closed.
            let operation = unsafe {
                OverlappedIo::read(pipe.as_raw_handle(), event, spare.as_mut_ptr().cast(), room)
            };
            TransferStart::Running(Running::Operation(operation))
        }
        Slot::Write(pipe, bytes, from) => {
            let end = pipe.end();
            let piece = end.piece(bytes.get(*from..).unwrap_or_default());
            if piece.is_empty() {
                return complete(slot, Ok(0));
            }
            if !end.is_overlapped() {
                return write_on_thread_or_now(slot, &end, event);
            }
            match end.start_write(WriteRequest { bytes: Arc::clone(bytes), from: *from }) {
                Ok(()) => TransferStart::Running(Running::Pending(end)),
                Err(error) => complete(slot, Err(error)),
            }
        }
        _ => TransferStart::Done,
    }
}

/// Returns the event of a write that is left to the kernel.
fn event_of_write(slot: &Slot<'_>) -> io::Result<Option<Arc<Wake>>> {
    match slot {
        Slot::Write(pipe, ..) => {
            let end = pipe.end();
            end.is_overlapped().then(|| end.event()).transpose()
        }
        _ => Ok(None),
    }
}

/// Reads from an end that is not overlapped, if data is available.
fn read_now(slot: &mut Slot<'_>) -> TransferStart {
    let Slot::Read(pipe, buffer) = slot else { return TransferStart::Done };
    match pipe.try_read_spare(buffer) {
        // A console wakes the wait itself.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => match pipe.console() {
            Some(_) => TransferStart::Nothing,
            None => TransferStart::Retry,
        },
        result => complete(slot, result),
    }
}

/// Writes to an end that is not overlapped: on its thread if a write may block.
fn write_on_thread_or_now(
    slot: &mut Slot<'_>,
    end: &Arc<WriteEnd>,
    event: &Arc<Wake>,
) -> TransferStart {
    let Slot::Write(pipe, bytes, from) = slot else { return TransferStart::Done };
    if let Some(thread) = end.writer_thread() {
        thread.start(WriteRequest { bytes: Arc::clone(bytes), from: *from }, Arc::clone(event));
        return TransferStart::Running(Running::OnThread(ThreadWrite(Arc::clone(end))));
    }
    let result = pipe.try_write(bytes.get(*from..).unwrap_or_default());
    complete(slot, result)
}

fn complete(slot: &mut Slot<'_>, result: io::Result<usize>) -> TransferStart {
    *slot = match mem::take(slot) {
        Slot::Read(pipe, buffer) => Slot::ReadDone(pipe, buffer, result),
        Slot::Write(pipe, bytes, _) => Slot::WriteDone(pipe, bytes, result),
        other => other,
    };
    TransferStart::Done
}

/// Stores the result of an operation in its slot. `false`: there is none yet, and the transfer goes
/// on.
pub(in crate::base::wait) fn finish(
    slot: &mut Slot<'_>,
    result: Option<io::Result<usize>>,
) -> bool {
    let Some(result) = result else { return false };
    let result = match slot {
        Slot::Read(pipe, buffer) => {
            let result = map_read_result(pipe.as_handle(), result);
            if let Some(Ok(count)) = result {
                // SAFETY: the operation has initialized that many bytes after the length.
                unsafe { buffer.set_len(buffer.len() + count) };
                pipe.note_read(buffer.get(buffer.len() - count..).unwrap_or_default());
            }
            result
        }
        Slot::Write(..) => Some(map_write_result(result)),
        _ => None,
    };
    match result {
        Some(result) => matches!(complete(slot, result), TransferStart::Done),
        None => false,
    }
}

// A registered wait: the system's own threads wait for one handle, on behalf of the process.

/// A handle that is waited for once, and the event that is raised then.
///
/// # Drop
/// Unregisters the wait; no callback is running when it returns.
#[derive(Debug)]
pub(in crate::base::wait) struct RegisteredWait {
    registered: HANDLE,
    /// Dropped after the registration. The system's thread has a pointer to it until then.
    context: Arc<CallbackContext>,
}

// SAFETY: the registration belongs to the process, and any thread may unregister it.
unsafe impl Send for RegisteredWait {}
// SAFETY: a shared reference only reads an atomic flag.
unsafe impl Sync for RegisteredWait {}

#[derive(Debug)]
struct CallbackContext {
    is_signalled: AtomicBool,
    event: Arc<Wake>,
}

impl RegisteredWait {
    /// Registers the wait.
    ///
    /// # Errors
    /// No more threads or no memory available.
    ///
    /// # Safety
    /// The handle stays open until this is dropped.
    pub(in crate::base::wait) unsafe fn new(
        handle: BorrowedHandle<'_>,
        event: &Arc<Wake>,
    ) -> io::Result<RegisteredWait> {
        let context = Arc::new(CallbackContext {
            is_signalled: AtomicBool::new(false),
            event: Arc::clone(event),
        });
        let mut registered = ptr::null_mut();
        let how = WT_EXECUTEINWAITTHREAD | WT_EXECUTEONLYONCE;
        let pointer = Arc::as_ptr(&context).cast::<c_void>();
        // SAFETY: an open handle, which stays open as the caller promises; the context lives until
        // the registration ends, and is only used by shared reference.
        let done = unsafe {
            RegisterWaitForSingleObject(
                &raw mut registered,
                handle.as_raw_handle(),
                Some(on_signalled),
                pointer,
                INFINITE,
                how,
            )
        };
        match done {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(RegisteredWait { registered, context }),
        }
    }

    /// Returns true if the handle was reported. It will not be reported again.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "tasks ask"))]
    pub(in crate::base::wait) fn is_signalled(&self) -> bool {
        self.context.is_signalled.load(Ordering::Acquire)
    }
}

impl Drop for RegisteredWait {
    fn drop(&mut self) {
        // Also waits for a running callback, which raises the event. Ignored: unregistering a
        // registered wait cannot fail. SAFETY: registered, and not yet unregistered.
        let _ = unsafe { UnregisterWaitEx(self.registered, INVALID_HANDLE_VALUE) };
    }
}

unsafe extern "system" fn on_signalled(context: *mut c_void, _: bool) {
    // SAFETY: it lives until the wait is unregistered, which waits for this callback.
    let context = unsafe { &*context.cast::<CallbackContext>() };
    context.is_signalled.store(true, Ordering::Release);
    context.event.raise();
}

// The timeout of a wait: never shorter than requested, and not a whole clock tick longer.

/// The most by which a wait in milliseconds is too long: one clock tick. A nearer deadline gets a
/// timer.
const TICK: Duration = Duration::from_millis(16);
/// The longest single wait. A deadline further away takes several, so that no conversion can
/// overflow.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The limits of one system call.
struct WaitLimit<'a> {
    ms: u32,
    /// Signalled earlier than `ms`.
    timer: Option<BorrowedHandle<'a>>,
}

struct Timeout {
    deadline: Option<Instant>,
    timer: Option<OwnedHandle>,
}

impl Timeout {
    fn at(deadline: Option<Instant>) -> Timeout {
        Timeout { deadline, timer: None }
    }

    /// Returns true if the deadline has passed.
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Returns the limit of a call that must not wait.
    fn immediate(&self) -> WaitLimit<'_> {
        WaitLimit { ms: 0, timer: None }
    }

    /// Returns the limit of the next call, which may end before the deadline.
    fn next(&mut self, sooner: Option<Instant>) -> WaitLimit<'_> {
        let Some(until) = [self.deadline, sooner].into_iter().flatten().min() else {
            return WaitLimit { ms: INFINITE, timer: None };
        };
        let left = until.saturating_duration_since(Instant::now()).min(LONGEST_WAIT);
        if left.is_zero() {
            return self.immediate();
        }
        if left < TICK && self.set_timer(left) {
            // The timer ends the wait.
            return WaitLimit {
                ms: INFINITE,
                timer: self.timer.as_ref().map(OwnedHandle::as_handle),
            };
        }
        // Rounded up: a wait that ends too early is followed by another.
        WaitLimit { ms: left.as_nanos().div_ceil(1_000_000) as u32, timer: None }
    }

    /// Starts the timer. `false`: there is no timer of this kind (before Windows 10 1803).
    fn set_timer(&mut self, left: Duration) -> bool {
        if self.timer.is_none() {
            self.timer = make_timer();
        }
        let Some(timer) = &self.timer else { return false };
        // In units of 100 ns; a negative value is relative to now.
        let due = -(left.as_nanos().div_ceil(100) as i64);
        // SAFETY: an open timer and a live integer; no completion routine.
        let set = unsafe {
            SetWaitableTimer(timer.as_raw_handle(), &raw const due, 0, None, ptr::null(), 0)
        };
        set != 0
    }
}

fn make_timer() -> Option<OwnedHandle> {
    let (how, access) =
        (CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, TIMER_MODIFY_STATE | SYNCHRONIZATION_SYNCHRONIZE);
    // SAFETY: no attributes and no name.
    let timer = unsafe { CreateWaitableTimerExW(ptr::null(), ptr::null(), how, access) };
    // SAFETY: made by the call above, and owned by nothing else.
    (!timer.is_null()).then(|| unsafe { OwnedHandle::from_raw_handle(timer) })
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod handle_tests {
    use super::*;
    use crate::base::handle::inheritable;

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
