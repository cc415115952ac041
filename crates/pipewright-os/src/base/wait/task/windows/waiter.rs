//! Waits for handles on behalf of every task of this process, on one thread.
//!
//! To wake a task when a process ends or an event is set, Windows needs a thread; this one is
//! shared. The thread starts with the first wait, ends after an idle period, and does nothing but
//! wake tasks.

use std::io;
use std::os::windows::io::{AsHandle as _, AsRawHandle as _, OwnedHandle};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Threading::INFINITE;
use windows_sys::w;

use super::super::super::windows::CHECK_INTERVAL;
use super::super::super::windows::handles::{MAX_HANDLES, for_each_signalled, wait_for_any};
use super::super::super::windows::registered::RegisteredWait;
use crate::base::service_thread;
use crate::base::wake::Wake;

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

/// The thread, and its queue.
pub(super) struct Waiter {
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
pub(super) struct HandleWait {
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
    pub(super) fn new(handle: OwnedHandle) -> HandleWait {
        HandleWait::at(&WAITER, handle)
    }

    fn at(waiter: &'static Waiter, handle: OwnedHandle) -> HandleWait {
        HandleWait { entry: Arc::new(WaitEntry { handle, state: Mutex::default() }), waiter }
    }

    /// Registers the task to be woken once, when the handle is signalled or if it already is.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(super) fn wake(&self, waker: &Waker) -> io::Result<()> {
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
mod tests {
    use super::*;
    use crate::base::handle::copy_of;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::Wake as TaskWake;

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
