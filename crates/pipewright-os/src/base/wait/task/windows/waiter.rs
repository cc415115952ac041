//! Waits for handles on behalf of every task of this process, on one thread.
//!
//! Nothing else in the system wakes a task when a process ends or an event is raised without taking a
//! thread of its own, or a share in one. The thread starts with the first wait, ends when there has
//! been none for a while, and does nothing but wake.

use std::io;
use std::os::windows::io::{AsHandle as _, AsRawHandle as _, OwnedHandle};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Threading::INFINITE;
use windows_sys::w;

use super::super::super::windows::LOOK_PAUSE;
use super::super::super::windows::handles::{MOST_HANDLES, each_that_has_come, wait_for_any};
use super::super::super::windows::registered::Registered;
use crate::base::service_thread;
use crate::base::wake::Wake;

/// How long the thread stays when it has nothing to do.
const IDLE: Duration = Duration::from_secs(1);
/// How long the thread pauses when it cannot wait.
const AFTER_ERROR: Duration = Duration::from_millis(20);
/// Beside the thread's own event.
const DIRECT_HANDLES: usize = MOST_HANDLES - 1;

static WAITER: Waiter = Waiter::new(has_wait_packets);

/// Returns true if the threads that wait for the whole process (`RegisterWaitForSingleObject`) take any number
/// of handles each. Without the kernel's wait packets (Windows 8) that is 63, and then another thread.
fn has_wait_packets() -> bool {
    // SAFETY: a name that ends with a zero.
    let ntdll = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    let call = c"NtAssociateWaitCompletionPacket";
    // SAFETY: a module that stays loaded, and a name that ends with a zero.
    unsafe { GetProcAddress(ntdll, call.as_ptr().cast()) }.is_some()
}

/// The thread, and what it is given.
pub(super) struct Waiter {
    inbox: Mutex<Inbox>,
    /// Whether the system waits for any number of handles without more threads: then it does so for
    /// those beyond [`DIRECT_HANDLES`]. Else they are looked at, again and again.
    pools: fn() -> bool,
}

struct Inbox {
    new: Vec<Arc<Entry>>,
    /// Wakes the thread; `None`: there is none.
    control: Option<Arc<Wake>>,
}

/// A handle that a task may wait for.
///
/// # Drop
/// Gives the wait up.
#[derive(Debug)]
pub(super) struct Awaited {
    entry: Arc<Entry>,
    waiter: &'static Waiter,
}

#[derive(Debug)]
struct Entry {
    handle: OwnedHandle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Who is to be woken.
    waker: Option<Waker>,
    /// The thread has it.
    is_waited_for: bool,
    is_given_up: bool,
}

impl Awaited {
    /// Owns a handle of its own, as the thread may have it a moment longer than the task does.
    pub(super) fn new(handle: OwnedHandle) -> Awaited {
        Awaited::at(&WAITER, handle)
    }

    fn at(waiter: &'static Waiter, handle: OwnedHandle) -> Awaited {
        Awaited { entry: Arc::new(Entry { handle, state: Mutex::default() }), waiter }
    }

    /// Sees to it that the task is woken once, when the handle has come, or already has.
    ///
    /// # Errors
    /// No room for the thread.
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

impl Drop for Awaited {
    fn drop(&mut self) {
        let mut state = self.entry.lock();
        state.is_given_up = true;
        state.waker = None;
        let is_waited_for = state.is_waited_for;
        drop(state);
        if is_waited_for {
            // So that the handle is closed soon.
            self.waiter.nudge();
        }
    }
}

impl Entry {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whole at any time: its parts are only ever replaced.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_given_up(&self) -> bool {
        self.lock().is_given_up
    }

    /// Wakes the task. The thread has nothing to do with this any more until it is added again.
    fn tell(&self) {
        let mut state = self.lock();
        state.is_waited_for = false;
        let waker = state.waker.take();
        // A waker may do anything, and so also come back here.
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Waiter {
    const fn new(pools: fn() -> bool) -> Waiter {
        Waiter { inbox: Mutex::new(Inbox { new: Vec::new(), control: None }), pools }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        // A vector and a pointer, which are whole between calls.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&'static self, entry: &Arc<Entry>) -> io::Result<()> {
        let mut inbox = self.lock();
        match &inbox.control {
            Some(control) => control.raise(),
            None => {
                let control = Arc::new(Wake::new()?);
                let for_thread = Arc::clone(&control);
                service_thread::start(c"pipewright-wait", move || self.work(&for_thread))?;
                inbox.control = Some(control);
            }
        }
        // The thread looks as soon as it has the lock.
        inbox.new.push(Arc::clone(entry));
        Ok(())
    }

    fn nudge(&self) {
        if let Some(control) = &self.lock().control {
            control.raise();
        }
    }

    fn work(&self, control: &Arc<Wake>) {
        let pools = (self.pools)();
        let mut all: Vec<Waiting> = Vec::new();
        let mut rested = false;
        loop {
            {
                let mut inbox = self.lock();
                control.lower();
                all.extend(inbox.new.drain(..).map(Waiting::new));
                if rested && all.is_empty() {
                    // Under the lock: whoever comes next starts a new thread.
                    inbox.control = None;
                    return;
                }
            }
            all.retain(|waiting| !waiting.entry.is_given_up());
            if pools {
                for waiting in all.iter_mut().skip(DIRECT_HANDLES) {
                    waiting.leave_to_the_system(control);
                }
            }
            let waited = wait(control, &all);
            rested = all.is_empty() && matches!(waited, Ok(false));
            if waited.and_then(|_| note_who_has_come(&mut all)).is_err() {
                // No memory for a wait: they are to look themselves, and come again.
                thread::park_timeout(AFTER_ERROR);
                all.iter_mut().for_each(|waiting| waiting.has_come = true);
            }
            all.retain(|waiting| {
                if waiting.has_come() {
                    waiting.entry.tell();
                }
                !waiting.has_come()
            });
        }
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

/// What the thread has.
struct Waiting {
    /// Before the entry, whose handle it is about.
    registered: Option<Registered>,
    entry: Arc<Entry>,
    has_come: bool,
}

impl Waiting {
    fn new(entry: Arc<Entry>) -> Waiting {
        Waiting { registered: None, entry, has_come: false }
    }

    /// Where the system cannot, it is looked at.
    fn leave_to_the_system(&mut self, control: &Arc<Wake>) {
        if self.registered.is_none() {
            let handle = self.entry.handle.as_handle();
            // SAFETY: the entry owns the handle, and outlives this.
            self.registered = unsafe { Registered::new(handle, control) }.ok();
        }
    }

    fn has_come(&self) -> bool {
        self.has_come || self.registered.as_ref().is_some_and(Registered::has_come)
    }
}

/// Waits for the first of them. `false`: none has come for a while.
fn wait(control: &Wake, all: &[Waiting]) -> io::Result<bool> {
    if all.iter().any(Waiting::has_come) {
        // The system raised `control` for it, which may have been lowered since.
        return Ok(true);
    }
    let is_direct = |place: usize| place < DIRECT_HANDLES;
    let has_to_look =
        all.iter().enumerate().any(|(place, it)| !is_direct(place) && it.registered.is_none());
    let limit_ms = match (has_to_look, all.is_empty()) {
        (true, _) => LOOK_PAUSE.as_millis() as u32,
        (false, true) => IDLE.as_millis() as u32,
        (false, false) => INFINITE,
    };
    let mut raw = [control.as_handle().as_raw_handle(); MOST_HANDLES];
    let mut count = 1;
    for (place, waiting) in raw.iter_mut().skip(1).zip(all) {
        *place = waiting.entry.handle.as_raw_handle();
        count += 1;
    }
    wait_for_any(&raw[..count], limit_ms).map(|found| found.is_some())
}

fn note_who_has_come(all: &mut [Waiting]) -> io::Result<()> {
    for some in all.chunks_mut(MOST_HANDLES) {
        let mut come = [false; MOST_HANDLES];
        each_that_has_come(some.iter().map(|it| it.entry.handle.as_raw_handle()), |at| {
            come[at] = true;
        })?;
        for (waiting, come) in some.iter_mut().zip(come) {
            waiting.has_come |= come;
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
    use std::task::Wake as Waken;

    /// Says who was woken.
    struct Says(usize, Mutex<Sender<usize>>);

    impl Waken for Says {
        fn wake(self: Arc<Self>) {
            let _ = self.1.lock().unwrap().send(self.0);
        }
    }

    fn crowd(waiter: &'static Waiter, count: usize) -> (Vec<(Wake, Awaited)>, Receiver<usize>) {
        let (sender, woken) = channel();
        let one = |number| {
            let event = Wake::new().unwrap();
            let copy = copy_of(event.as_handle().as_raw_handle(), false).unwrap();
            let awaited = Awaited::at(waiter, copy);
            awaited.wake(&Arc::new(Says(number, Mutex::new(sender.clone()))).into()).unwrap();
            (event, awaited)
        };
        ((0..count).map(one).collect(), woken)
    }

    #[test]
    fn each_of_many_is_told_of_once_and_those_given_up_never() {
        for pools in [(|| false) as fn() -> bool, || true] {
            let waiter: &'static Waiter = Box::leak(Box::new(Waiter::new(pools)));
            let (mut crowd, woken) = crowd(waiter, 200);
            for number in [0, 62, 63, 64, 130, 199] {
                crowd[number].0.raise();
                assert_eq!(woken.recv().unwrap(), number);
            }
            // 0 .. 9 are given up: nobody is woken by those any more.
            let gone: Vec<_> = crowd.drain(..10).collect();
            let events: Vec<_> = gone.into_iter().map(|(event, _)| event).collect();
            events.iter().for_each(Wake::raise);
            crowd.iter().for_each(|(event, _)| event.raise());
            let mut rest: Vec<_> = woken.iter().take(190 - 5).collect();
            rest.sort_unstable();
            let expected: Vec<_> =
                (10..200).filter(|number| ![62, 63, 64, 130, 199].contains(number)).collect();
            assert_eq!(rest, expected);
            // One that was told of, and is waited for again, is told of again at once.
            let (sender, again) = channel();
            let waker: Waker = Arc::new(Says(7, Mutex::new(sender))).into();
            crowd[100].1.wake(&waker).unwrap();
            assert_eq!(again.recv().unwrap(), 7);
            drop(crowd);
            assert!(woken.try_recv().is_err());
        }
    }

    /// The thread lowers its event in every round. It may have been raised in between.
    #[test]
    fn a_registered_handle_ends_a_wait_that_begins_after_it_was_reported() {
        let waiter: &'static Waiter = Box::leak(Box::new(Waiter::new(|| true)));
        let control = Arc::new(Wake::new().unwrap());
        let events: Vec<_> = (0..=DIRECT_HANDLES).map(|_| Wake::new().unwrap()).collect();
        let copy = |event: &Wake| copy_of(event.as_handle().as_raw_handle(), false).unwrap();
        let awaited: Vec<_> = events.iter().map(|it| Awaited::at(waiter, copy(it))).collect();
        let mut all: Vec<_> =
            awaited.iter().map(|it| Waiting::new(Arc::clone(&it.entry))).collect();
        all[DIRECT_HANDLES].leave_to_the_system(&control);
        events[DIRECT_HANDLES].raise();
        // It reports first, and raises the event then.
        while !control.is_raised() {
            thread::yield_now();
        }
        control.lower();
        assert!(wait(&control, &all).unwrap());
    }

    #[test]
    fn the_thread_ends_and_comes_again() {
        static ROUNDS: AtomicUsize = AtomicUsize::new(0);
        let waiter: &'static Waiter = Box::leak(Box::new(Waiter::new(|| {
            ROUNDS.fetch_add(1, Ordering::Relaxed);
            false
        })));
        for round in 1..=2 {
            let (crowd, woken) = crowd(waiter, 1);
            crowd[0].0.raise();
            woken.recv().unwrap();
            assert_eq!(ROUNDS.load(Ordering::Relaxed), round);
            while waiter.lock().control.is_some() {
                thread::park_timeout(Duration::from_millis(5));
            }
        }
    }
}
