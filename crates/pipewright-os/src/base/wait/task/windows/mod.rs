//! Overlapped transfers that outlive a poll, and one thread that reports their ends.
//!
//! No memory of the caller is left to the kernel. A read of zero bytes, which takes no data,
//! finishes when there is something to read; the real read follows when the task polls again. The
//! bytes of a write are shared, and the pipe end owns them until they are written or the write is
//! cancelled.

use std::future::Future as _;
use std::os::windows::io::{AsHandle as _, AsRawHandle as _, BorrowedHandle, OwnedHandle};
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use std::{io, slice, thread};

use tokio::task::coop;
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Threading::INFINITE;
use windows_sys::w;

use crate::base::handle::copy_of;
use crate::base::overlapped::OverlappedIo;
use crate::base::pipe::{PipeReader, WriteEnd, WriteRequest};
use crate::base::service_thread;
use crate::base::wait::Slot;
use crate::base::wait::windows::{
    self, CHECK_INTERVAL, MAX_HANDLES, RegisteredWait, Running, TransferStart, complete_event,
    finish, for_each_signalled, handle_of, is_unwaitable, start, wait_for_any,
};
use crate::base::wake::{self, Wake, is_signalled};

/// The operations in progress, each at the index of its slot.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Dropped before the event, which the kernel may set until then.
    places: Vec<SlotState>,
    event: Option<SharedEvent>,
    /// A source reports no event, and has to be checked periodically.
    needs_check: bool,
    /// The task's budget is used up: nothing was checked, and the task is woken again.
    is_deferred: bool,
}

/// The event that is set when a transfer is done.
#[derive(Debug)]
struct SharedEvent {
    wake: Arc<Wake>,
    handle_wait: HandleWait,
}

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Idle,
    /// Waits for data to read.
    Read { number: usize, probe: ZeroByteRead },
    Write {
        running: Running,
        target: WriteTarget,
        /// The event of the pipe end, if the kernel writes.
        handle_wait: Option<HandleWait>,
    },
    /// A process, or a flag.
    Wait {
        number: usize,
        handle_wait: HandleWait,
        /// Keeps the number from being reused for another process's handle.
        _event: Option<Arc<dyn wake::WaitEvent>>,
    },
}

#[derive(Debug)]
struct ZeroByteRead {
    /// Dropped before the file.
    read: Option<OverlappedIo>,
    /// A duplicate of the handle: closing the original does not end the read.
    file: OwnedHandle,
}

/// The bytes of a write and their target, kept until the kernel has released them.
#[derive(Debug)]
struct WriteTarget {
    end: Arc<WriteEnd>,
    bytes: Arc<Vec<u8>>,
    from: usize,
}

impl Sources {
    /// Returns true if no operation in progress could end a wait.
    pub(super) fn is_empty(&self) -> bool {
        let is_nothing = |place: &SlotState| matches!(place, SlotState::Idle);
        self.places.iter().all(is_nothing) && !self.needs_check && !self.is_deferred
    }

    /// Returns the time of the next periodic check, if one is needed.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.needs_check.then(|| Instant::now() + CHECK_INTERVAL)
    }

    /// Waits once. `Pending`: no slot is done, and the task is woken when one may be.
    pub(super) fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [Slot<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_deferred = !coop::has_budget_remaining();
        if self.is_deferred {
            // A child that never stops writing must not keep other tasks from their turn.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let done = self.poll(cx, slots);
        if done.is_ready() {
            // Ignored: some budget remained.
            let _ = pin!(coop::consume_budget()).poll(cx);
        }
        done
    }

    /// Waits once without a runtime, for sources that need no periodic check.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [Slot<'_>],
    ) -> Poll<io::Result<usize>> {
        self.places.resize_with(slots.len(), SlotState::default);
        loop {
            let done = self.advance(cx, slots);
            // Also after an error: the result of a finished write must not be lost.
            if !matches!(done, Ok(0)) {
                let stopped = self.stop(slots);
                return Poll::Ready(done.map(|done| done + stopped));
            }
            match &self.event {
                // Set since the last check.
                Some(event) if event.wake.is_raised() => {}
                Some(event) if self.places.iter().any(SlotState::is_shared) => {
                    return match event.handle_wait.wake(cx.waker()) {
                        Ok(()) => Poll::Pending,
                        Err(error) => Poll::Ready(Err(error)),
                    };
                }
                _ => return Poll::Pending,
            }
        }
    }

    /// Starts operations that are not running, and completes slots whose operation is done. Returns
    /// the number of completed slots.
    fn advance(&mut self, cx: &Context<'_>, slots: &mut [Slot<'_>]) -> io::Result<usize> {
        self.needs_check = false;
        if let Some(event) = &self.event {
            // An operation that finishes from here on sets the event again, or is found below: each
            // start resets it too.
            event.wake.lower();
        }
        let mut done = 0;
        for (place, slot) in self.places.iter_mut().zip(slots.iter_mut()) {
            done += usize::from(place.start(slot, &mut self.event)?);
        }
        for (place, slot) in self.places.iter_mut().zip(slots.iter_mut()) {
            done += usize::from(place.complete(cx, slot, &mut self.needs_check)?);
        }
        Ok(done)
    }

    /// Completes the slots of writes that are done by now, and returns their number. The others go
    /// on.
    fn stop(&mut self, slots: &mut [Slot<'_>]) -> usize {
        let mut done = 0;
        for (place, slot) in self.places.iter_mut().zip(slots) {
            let SlotState::Write { running, .. } = place else { continue };
            if let Some(result) = running.result() {
                *place = SlotState::Idle;
                done += usize::from(finish(slot, Some(result)));
            }
        }
        done
    }
}

impl SlotState {
    /// Returns true if the shared event reports its end.
    fn is_shared(&self) -> bool {
        matches!(self, SlotState::Write { handle_wait: None, .. } | SlotState::Read { .. })
    }

    /// Starts the operation that the slot requests, if it is not running. `true`: the slot is done.
    fn start(&mut self, slot: &mut Slot<'_>, event: &mut Option<SharedEvent>) -> io::Result<bool> {
        match slot {
            Slot::Read(pipe, _) if pipe.is_overlapped() => {
                let number = handle_number(pipe.as_handle());
                if !matches!(self, SlotState::Read { number: old, .. } if *old == number) {
                    *self = SlotState::Read { number, probe: ZeroByteRead::new(pipe)? };
                }
                if let SlotState::Read { probe, .. } = self {
                    probe.start(&*shared(event)?);
                }
            }
            Slot::Write(pipe, bytes, from) => {
                let target = WriteTarget { end: pipe.end(), bytes: Arc::clone(bytes), from: *from };
                if matches!(self, SlotState::Write { target: old, .. } if old.is_same(&target)) {
                    if target.end.is_overlapped() {
                        // Another call may have taken its result.
                        target
                            .end
                            .start_write(WriteRequest { bytes: target.bytes, from: target.from })?;
                    }
                    return Ok(false);
                }
                *self = SlotState::Idle;
                let handle_wait = match target.end.is_overlapped() {
                    true => {
                        let event = target.end.event()?;
                        Some(HandleWait::new(copy_of(event.as_handle().as_raw_handle(), false)?))
                    }
                    false => None,
                };
                match start(slot, &shared(event)?) {
                    TransferStart::Running(running) => {
                        *self = SlotState::Write { running, target, handle_wait }
                    }
                    TransferStart::Done => return Ok(true),
                    TransferStart::Retry | TransferStart::Nothing => {}
                }
            }
            slot => match handle_of(slot) {
                Some(handle) => {
                    let number = handle_number(handle);
                    if !matches!(self, SlotState::Wait { number: old, .. } if *old == number) {
                        let copy = copy_of(handle.as_raw_handle(), false)?;
                        let event = match slot {
                            Slot::Owned(event) => Some(Arc::clone(event)),
                            _ => None,
                        };
                        *self = SlotState::Wait {
                            number,
                            handle_wait: HandleWait::new(copy),
                            _event: event,
                        };
                    }
                }
                None => {
                    *self = SlotState::Idle;
                    return Ok(slot.complete_if_happened());
                }
            },
        }
        Ok(false)
    }

    /// Completes the slot if possible; otherwise arranges that the task is woken when that changes.
    fn complete(
        &mut self,
        cx: &Context<'_>,
        slot: &mut Slot<'_>,
        needs_check: &mut bool,
    ) -> io::Result<bool> {
        match (&mut *self, &mut *slot) {
            (SlotState::Read { probe, .. }, Slot::Read(..)) => {
                if !probe.take_if_done() {
                    return Ok(false);
                }
            }
            // A pipe that no event reports.
            (_, Slot::Read(..)) => {}
            (SlotState::Idle, slot) if is_unwaitable(slot) => {
                *needs_check = true;
                return Ok(false);
            }
            (SlotState::Write { running, handle_wait, .. }, _) => {
                let Some(result) = running.result() else {
                    if let Some(handle_wait) = handle_wait {
                        handle_wait.wake(cx.waker())?;
                    }
                    return Ok(false);
                };
                *self = SlotState::Idle;
                return Ok(finish(slot, Some(result)));
            }
            (SlotState::Wait { handle_wait, .. }, slot) => {
                if handle_of(slot).is_some_and(is_signalled) {
                    return Ok(complete_event(slot));
                }
                handle_wait.wake(cx.waker())?;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        let is_done = windows::wait(slice::from_mut(slot), Some(Instant::now()))? > 0;
        // The other end has written zero bytes, or another reader has taken the data.
        *needs_check |= !is_done;
        Ok(is_done)
    }
}

impl ZeroByteRead {
    fn new(pipe: &PipeReader) -> io::Result<ZeroByteRead> {
        Ok(ZeroByteRead { read: None, file: copy_of(pipe.as_raw_handle(), false)? })
    }

    fn start(&mut self, event: &Wake) {
        if self.read.is_none() {
            let (file, nowhere) = (self.file.as_raw_handle(), NonNull::dangling().as_ptr());
            // SAFETY: the file and the event stay open until this is dropped; the read uses no
            // memory.
            self.read = Some(unsafe { OverlappedIo::read(file, event, nowhere, 0) });
        }
    }

    /// Returns true if there is data, an end or an error, which the real read will return.
    fn take_if_done(&mut self) -> bool {
        self.read.take_if(|read| read.result().is_some()).is_some()
    }
}

impl WriteTarget {
    fn is_same(&self, other: &WriteTarget) -> bool {
        Arc::ptr_eq(&self.end, &other.end)
            && Arc::ptr_eq(&self.bytes, &other.bytes)
            && self.from == other.from
    }
}

/// Returns the common event of the transfers, which the first of them makes.
fn shared(event: &mut Option<SharedEvent>) -> io::Result<Arc<Wake>> {
    if let Some(event) = event {
        return Ok(Arc::clone(&event.wake));
    }
    let wake = Arc::new(Wake::new()?);
    let handle_wait = HandleWait::new(copy_of(wake.as_handle().as_raw_handle(), false)?);
    *event = Some(SharedEvent { wake: Arc::clone(&wake), handle_wait });
    Ok(wake)
}

/// Returns the number of a handle, for comparisons only: the handle may be closed.
fn handle_number(handle: BorrowedHandle<'_>) -> usize {
    handle.as_raw_handle().addr()
}

/// The time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(1);
/// The pause of the thread after a failed wait.
const AFTER_ERROR: Duration = Duration::from_millis(20);
/// The handles of one wait, beside the thread's own event.
const DIRECT_HANDLES: usize = MAX_HANDLES - 1;

static WAITER: Waiter = Waiter::new(has_wait_packets);

/// Returns true if the thread pool's wait threads (`RegisterWaitForSingleObject`) can wait for any
/// number of handles each. Without the kernel's wait packets (Windows 8) the limit is 63, and then
/// another thread.
fn has_wait_packets() -> bool {
    // SAFETY: a name that ends with a zero.
    let ntdll = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    let call = c"NtAssociateWaitCompletionPacket";
    // SAFETY: a module that stays loaded, and a name that ends with a zero.
    unsafe { GetProcAddress(ntdll, call.as_ptr().cast()) }.is_some()
}

/// The thread that waits for handles on behalf of every task of this process, and its queue. To wake a task when a
/// process ends or an event is set, Windows needs a thread; this one is shared. It starts with the first wait, ends
/// after an idle period, and does nothing but wake tasks.
struct Waiter {
    new_waits: Mutex<NewWaits>,
    /// Returns true if the system can wait for any number of handles without more threads. Then it
    /// waits for those beyond [`DIRECT_HANDLES`]; otherwise they are checked periodically.
    has_wait_packets: fn() -> bool,
}

struct NewWaits {
    new: Vec<Arc<WaitEntry>>,
    /// Wakes the thread; `None`: there is no thread.
    control: Option<Arc<Wake>>,
}

/// A handle that a task may wait for.
///
/// # Drop
/// Abandons the wait.
#[derive(Debug)]
struct HandleWait {
    entry: Arc<WaitEntry>,
    waiter: &'static Waiter,
}

#[derive(Debug)]
struct WaitEntry {
    handle: OwnedHandle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The task to be woken.
    waker: Option<Waker>,
    /// The thread has the entry.
    is_waited_for: bool,
    is_abandoned: bool,
}

impl HandleWait {
    /// Takes a duplicate of the handle, as the thread may keep it a moment longer than the task
    /// does.
    fn new(handle: OwnedHandle) -> HandleWait {
        HandleWait::at(&WAITER, handle)
    }

    fn at(waiter: &'static Waiter, handle: OwnedHandle) -> HandleWait {
        HandleWait { entry: Arc::new(WaitEntry { handle, state: Mutex::default() }), waiter }
    }

    /// Registers the task to be woken once, when the handle is signalled or if it already is.
    ///
    /// # Errors
    /// The thread could not be started.
    fn wake(&self, waker: &Waker) -> io::Result<()> {
        {
            let mut state = self.entry.lock();
            match &mut state.waker {
                Some(old) => old.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
            if state.is_waited_for {
                return Ok(());
            }
            state.is_waited_for = true;
        }
        let added = self.waiter.add(&self.entry);
        if added.is_err() {
            self.entry.lock().is_waited_for = false;
        }
        added
    }
}

impl Drop for HandleWait {
    fn drop(&mut self) {
        let mut state = self.entry.lock();
        state.is_abandoned = true;
        state.waker = None;
        let is_waited_for = state.is_waited_for;
        drop(state);
        if is_waited_for {
            // Lets the thread close the handle soon.
            self.waiter.notify();
        }
    }
}

impl WaitEntry {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Consistent at any time: its parts are only ever replaced.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    /// Wakes the task. The thread has released the entry until it is added again.
    fn wake(&self) {
        let mut state = self.lock();
        state.is_waited_for = false;
        let waker = state.waker.take();
        // After the unlock: a waker may run any code, and so also come back here.
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Waiter {
    const fn new(has_wait_packets: fn() -> bool) -> Waiter {
        Waiter {
            new_waits: Mutex::new(NewWaits { new: Vec::new(), control: None }),
            has_wait_packets,
        }
    }

    fn lock(&self) -> MutexGuard<'_, NewWaits> {
        // A vector and a pointer, which are consistent between calls.
        self.new_waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&'static self, entry: &Arc<WaitEntry>) -> io::Result<()> {
        let mut new_waits = self.lock();
        match &new_waits.control {
            Some(control) => control.raise(),
            None => {
                let control = Arc::new(Wake::new()?);
                let for_thread = Arc::clone(&control);
                service_thread::start(c"pipewright-wait", move || self.work(&for_thread))?;
                new_waits.control = Some(control);
            }
        }
        // The thread checks the queue as soon as it gets the lock.
        new_waits.new.push(Arc::clone(entry));
        Ok(())
    }

    fn notify(&self) {
        if let Some(control) = &self.lock().control {
            control.raise();
        }
    }

    fn work(&self, control: &Arc<Wake>) {
        let has_wait_packets = (self.has_wait_packets)();
        let mut all: Vec<Waiting> = Vec::new();
        let mut was_idle = false;
        loop {
            {
                let mut new_waits = self.lock();
                control.lower();
                all.extend(new_waits.new.drain(..).map(Waiting::new));
                if was_idle && all.is_empty() {
                    // Under the lock: the next caller starts a new thread.
                    new_waits.control = None;
                    return;
                }
            }
            all.retain(|waiting| !waiting.entry.is_abandoned());
            if has_wait_packets {
                for waiting in all.iter_mut().skip(DIRECT_HANDLES) {
                    waiting.register(control);
                }
            }
            let waited = wait(control, &all);
            was_idle = all.is_empty() && matches!(waited, Ok(false));
            if waited.and_then(|_| mark_signalled(&mut all)).is_err() {
                // No memory for a wait: wake all tasks, which check for themselves and come back.
                thread::park_timeout(AFTER_ERROR);
                all.iter_mut().for_each(|waiting| waiting.is_signalled = true);
            }
            all.retain(|waiting| {
                if waiting.is_signalled() {
                    waiting.entry.wake();
                }
                !waiting.is_signalled()
            });
        }
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

/// An entry that the thread has.
struct Waiting {
    /// Dropped before the entry, which owns the handle.
    registered: Option<RegisteredWait>,
    entry: Arc<WaitEntry>,
    is_signalled: bool,
}

impl Waiting {
    fn new(entry: Arc<WaitEntry>) -> Waiting {
        Waiting { registered: None, entry, is_signalled: false }
    }

    /// Registers the handle with the system. If that fails, the thread checks it periodically.
    fn register(&mut self, control: &Arc<Wake>) {
        if self.registered.is_none() {
            let handle = self.entry.handle.as_handle();
            // SAFETY: the entry owns the handle, and outlives this.
            self.registered = unsafe { RegisteredWait::new(handle, control) }.ok();
        }
    }

    fn is_signalled(&self) -> bool {
        self.is_signalled || self.registered.as_ref().is_some_and(RegisteredWait::is_signalled)
    }
}

/// Waits for the first signalled handle. `false`: none was signalled for a while.
fn wait(control: &Wake, all: &[Waiting]) -> io::Result<bool> {
    if all.iter().any(Waiting::is_signalled) {
        // The system set `control` for it, which may have been reset since.
        return Ok(true);
    }
    let is_direct = |place: usize| place < DIRECT_HANDLES;
    let needs_check =
        all.iter().enumerate().any(|(place, it)| !is_direct(place) && it.registered.is_none());
    let limit_ms = match (needs_check, all.is_empty()) {
        (true, _) => CHECK_INTERVAL.as_millis() as u32,
        (false, true) => IDLE.as_millis() as u32,
        (false, false) => INFINITE,
    };
    let mut raw = [control.as_handle().as_raw_handle(); MAX_HANDLES];
    let mut count = 1;
    for (place, waiting) in raw.iter_mut().skip(1).zip(all) {
        *place = waiting.entry.handle.as_raw_handle();
        count += 1;
    }
    wait_for_any(&raw[..count], limit_ms).map(|found| found.is_some())
}

fn mark_signalled(all: &mut [Waiting]) -> io::Result<()> {
    for some in all.chunks_mut(MAX_HANDLES) {
        let mut signalled = [false; MAX_HANDLES];
        for_each_signalled(some.iter().map(|it| it.entry.handle.as_raw_handle()), |at| {
            signalled[at] = true;
        })?;
        for (waiting, signalled) in some.iter_mut().zip(signalled) {
            waiting.is_signalled |= signalled;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod waiter_tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::Wake as TaskWake;

    use super::*;

    /// Reports which task was woken.
    struct SendsNumber(usize, Mutex<Sender<usize>>);

    impl TaskWake for SendsNumber {
        fn wake(self: Arc<Self>) {
            let _ = self.1.lock().unwrap().send(self.0);
        }
    }

    fn waits(waiter: &'static Waiter, count: usize) -> (Vec<(Wake, HandleWait)>, Receiver<usize>) {
        let (sender, woken) = channel();
        let one = |number| {
            let event = Wake::new().unwrap();
            let copy = copy_of(event.as_handle().as_raw_handle(), false).unwrap();
            let waits = HandleWait::at(waiter, copy);
            waits.wake(&Arc::new(SendsNumber(number, Mutex::new(sender.clone()))).into()).unwrap();
            (event, waits)
        };
        ((0..count).map(one).collect(), woken)
    }

    #[test]
    fn each_of_many_wakes_its_task_once_and_a_dropped_one_never() {
        for has_wait_packets in [(|| false) as fn() -> bool, || true] {
            let waiter: &'static Waiter = Box::leak(Box::new(Waiter::new(has_wait_packets)));
            let (mut waits, woken) = waits(waiter, 200);
            for number in [0, 62, 63, 64, 130, 199] {
                waits[number].0.raise();
                assert_eq!(woken.recv().unwrap(), number);
            }
            // 0 .. 9 are dropped: those wake no task any more.
            let gone: Vec<_> = waits.drain(..10).collect();
            let events: Vec<_> = gone.into_iter().map(|(event, _)| event).collect();
            events.iter().for_each(Wake::raise);
            waits.iter().for_each(|(event, _)| event.raise());
            let mut rest: Vec<_> = woken.iter().take(190 - 5).collect();
            rest.sort_unstable();
            let expected: Vec<_> =
                (10..200).filter(|number| ![62, 63, 64, 130, 199].contains(number)).collect();
            assert_eq!(rest, expected);
            // An entry that was reported and is waited for again is reported again at once.
            let (sender, again) = channel();
            let waker: Waker = Arc::new(SendsNumber(7, Mutex::new(sender))).into();
            waits[100].1.wake(&waker).unwrap();
            assert_eq!(again.recv().unwrap(), 7);
            drop(waits);
            assert!(woken.try_recv().is_err());
        }
    }

    /// Resets the event first, as the thread does in every round, though it may have been set in
    /// between.
    #[test]
    fn a_registered_handle_ends_a_wait_that_begins_after_it_was_reported() {
        let waiter: &'static Waiter = Box::leak(Box::new(Waiter::new(|| true)));
        let control = Arc::new(Wake::new().unwrap());
        let events: Vec<_> = (0..=DIRECT_HANDLES).map(|_| Wake::new().unwrap()).collect();
        let copy = |event: &Wake| copy_of(event.as_handle().as_raw_handle(), false).unwrap();
        let waits: Vec<_> = events.iter().map(|it| HandleWait::at(waiter, copy(it))).collect();
        let mut all: Vec<_> = waits.iter().map(|it| Waiting::new(Arc::clone(&it.entry))).collect();
        all[DIRECT_HANDLES].register(&control);
        events[DIRECT_HANDLES].raise();
        // The callback reports first, and sets the event then.
        while !control.is_raised() {
            thread::yield_now();
        }
        control.lower();
        assert!(wait(&control, &all).unwrap());
    }

    #[test]
    fn the_thread_ends_and_starts_again() {
        static ROUNDS: AtomicUsize = AtomicUsize::new(0);
        let waiter: &'static Waiter = Box::leak(Box::new(Waiter::new(|| {
            ROUNDS.fetch_add(1, Ordering::Relaxed);
            false
        })));
        for round in 1..=2 {
            let (waits, woken) = waits(waiter, 1);
            waits[0].0.raise();
            woken.recv().unwrap();
            assert_eq!(ROUNDS.load(Ordering::Relaxed), round);
            while waiter.lock().control.is_some() {
                thread::park_timeout(Duration::from_millis(5));
            }
        }
    }
}
