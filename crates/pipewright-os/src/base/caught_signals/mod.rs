//! Signals that this process receives instead of being ended by them: one by one, as a flag, or as latches.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, ptr, thread};

use crate::base::generation::{Generation, PerProcess};
use crate::base::signal::Signal;
use crate::base::wake::{Latch, Wake};
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
use windows as imp;

/// Signals that this process receives one by one instead of being ended by them.
///
/// # Platform
/// Unix: blocks the signals in the calling thread. Threads started later inherit that; threads that
/// already run do not, and neither do children. So call it before other threads start (including those
/// of a multi-threaded runtime). Windows: `SetConsoleCtrlHandler`, for the whole process.
/// Ctrl-C is `INT`, Ctrl-Break is `QUIT`. `TERM` means that the console closes or the system shuts
/// down; the process then ends after some seconds (usually 5). No other signal arrives.
#[derive(Debug)]
pub struct CaughtSignals(imp::Caught);

impl CaughtSignals {
    /// Catches these signals, except those that are currently ignored (`nohup`, a background job):
    /// they stay ignored. Call it before other threads start.
    ///
    /// # Errors
    /// Windows: `KILL` or `STOP` is among them. (Unix leaves them out.) macOS: no thread can be started, or no more
    /// handles are available.
    pub fn new(signals: &[Signal]) -> io::Result<CaughtSignals> {
        imp::Caught::new(signals).map(CaughtSignals)
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// No signal can arrive: all of them are ignored, or Windows does not send them.
    pub fn wait(&self) -> io::Result<Signal> {
        self.wait_for_arrival().map(|arrived| arrived.signal)
    }

    /// Waits for the next signal, up to a time limit. Zero takes a signal that has already arrived.
    ///
    /// ```
    /// # use pipewright_os::base::caught_signals::CaughtSignals;
    /// # use pipewright_os::base::signal::Signal;
    /// use std::time::Duration;
    /// let caught = CaughtSignals::new(&[Signal::TERM])?;
    /// assert_eq!(caught.wait_for(Duration::from_millis(1))?, None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Platform
    /// Linux: `sigtimedwait`. macOS: a thread in `sigwait`, which no other call there can replace. Windows: an
    /// event that the console's handler sets.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[doc(alias = "wait_timeout")]
    pub fn wait_for(&self, limit: Duration) -> io::Result<Option<Signal>> {
        // A limit beyond the range of the clock is no limit.
        let arrived = self.0.wait_until(Instant::now().checked_add(limit))?;
        Ok(arrived.map(|arrived| arrived.signal))
    }

    /// Waits as [`wait`](Self::wait) does, for a task of a tokio runtime: blocks no thread (feature
    /// `tokio`).
    ///
    /// # Platform
    /// Linux: a `signalfd`, registered with the runtime; macOS: the pipe of the thread in `sigwait`. Catch the signals
    /// before you build a multi-threaded runtime.
    ///
    /// # Cancellation
    /// Dropping the future loses no signal.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); also if no more handles are available; outside a tokio runtime,
    /// `Unsupported`.
    #[cfg(feature = "tokio")]
    pub async fn wait_async(&self) -> io::Result<Signal> {
        self.0.wait_async().await.map(|arrived| arrived.signal)
    }

    /// Waits for the next signal, and also returns its origin.
    ///
    /// # Platform
    /// Linux: `sigwaitinfo`. macOS: `sigwait`, which does not tell the sender: `INT`, `QUIT` and `TSTP` count as sent
    /// by the terminal if this process is in its foreground (`tcgetpgrp`). Windows: only Ctrl-C counts as sent by the
    /// terminal; a parent can also send a break.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for_arrival(&self) -> io::Result<ArrivedSignal> {
        self.0.wait()
    }
}

/// A signal that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivedSignal {
    /// The signal.
    pub signal: Signal,
    /// True if the kernel sent it, and not a process: Ctrl-C at the terminal, which the whole foreground group
    /// received, or a hang-up, which the leader of the session received alone.
    pub from_terminal: bool,
    /// True if another process of this process's group sent it, perhaps to the whole group (`kill(0)`).
    ///
    /// # Platform
    /// macOS and Windows: false; the sender is not known.
    pub from_own_group: bool,
}

/// A flag that every arrival of these signals raises, as long as this lives. They have no other effect meanwhile.
///
/// # Platform
/// As for [`SignalLatches`].
///
/// # Drop
/// Restores the previous effect of the signals, unless other code has set another handler meanwhile.
#[derive(Debug)]
pub struct SignalFlag {
    /// Dropped first: no handler raises the flag afterwards.
    _registered: SignalLatches,
    wake: Arc<Wake>,
}

impl SignalFlag {
    /// Raises the flag from now on. Returns `None` if one of the signals is ignored, or never arrives on this system.
    ///
    /// # Errors
    /// A signal cannot be handled (`KILL`, `STOP`), or no more handles are available.
    pub fn install(signals: &[Signal]) -> io::Result<Option<SignalFlag>> {
        let wake = Arc::new(Wake::new()?);
        let registered = SignalLatches::raise_each_time(signals, Arc::clone(&wake))?;
        Ok(registered.map(|registered| SignalFlag { _registered: registered, wake }))
    }

    /// Returns the flag, to wait for it and to lower it.
    #[must_use]
    pub fn wake(&self) -> &Wake {
        &self.wake
    }
}

/// The interval within which several signals count as one. A supervisor (`timeout`, `npm`) signals
/// both the process and its group, and the terminal may have done so before.
const COALESCE_MS: u64 = 100;

// The handler may run at any instruction of any thread, so it takes no lock and frees no memory: it reads an immutable
// list. A change installs another list, and frees the old one when no handler is running. A fork inherits the list, but
// neither the running handlers nor a thread that is changing the list.

/// Signals that raise latches instead of having their previous effect, as long as this lives: the
/// first signal raises the first latch, the second one the second, and so on. A signal after the
/// last latch has the effect that it had before.
///
/// # Platform
/// Unix: a handler (`sigaction`, `SA_RESTART`). Windows: `SetConsoleCtrlHandler`, with the signals
/// of [`CaughtSignals`].
///
/// # Drop
/// Restores the previous effect of the signals, unless other code has set another handler
/// meanwhile.
#[derive(Debug)]
pub struct SignalLatches {
    set: u64,
    arrivals: Arc<Arrivals>,
}

/// The signals that have arrived for one registration.
#[derive(Debug, Default)]
struct Arrivals {
    count: AtomicUsize,
    first: AtomicI32,
    /// The time of the last one, in milliseconds after [`BASE`]; 0: none yet.
    last: AtomicU64,
}

/// A registration, as the handler sees it.
#[derive(Debug, Clone)]
struct Registration {
    set: u64,
    latches: Vec<Arc<Latch>>,
    /// Raised by every arrival, which needs no latch then.
    flag: Option<Arc<Wake>>,
    arrivals: Arc<Arrivals>,
}

/// The outcome of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Delivery {
    /// No registration handles this signal.
    Unhandled,
    Handled,
    /// Every latch was already raised.
    Exhausted,
}

/// The list that handlers read: never changed, only replaced.
static LIST: AtomicPtr<Vec<Registration>> = AtomicPtr::new(ptr::null_mut());
/// The number of running handlers (lower half), and the process that counts them (upper half): a
/// fork starts with the count of its parent.
static RUNNING: AtomicU64 = AtomicU64::new(0);
const COUNT_MASK: u64 = u32::MAX as u64;
/// The writer's copy of the list, one change at a time. A fork starts with the list that handlers
/// read.
static WRITER_LIST: PerProcess<Mutex<Vec<Registration>>> =
    PerProcess::new(|| Mutex::new(handler_list()));
/// The base of the times. Set once, before any handler is installed.
static BASE: AtomicPtr<Instant> = AtomicPtr::new(ptr::null_mut());

impl SignalLatches {
    /// Makes the first arrival of these signals raise that latch. Signals that are currently ignored
    /// (`nohup`, a background job) stay ignored.
    ///
    /// # Errors
    /// One of the signals cannot be handled (`KILL`, `STOP`).
    pub fn install(signals: &[Signal], latch: Arc<Latch>) -> io::Result<SignalLatches> {
        SignalLatches::register(signals, vec![latch], None)
    }

    /// Makes every arrival raise that flag. Returns `None` if a signal is ignored, or never arrives on this system.
    fn raise_each_time(signals: &[Signal], flag: Arc<Wake>) -> io::Result<Option<SignalLatches>> {
        let registered = SignalLatches::register(signals, Vec::new(), Some(flag))?;
        let has_all = signals.iter().all(|signal| registered.set & bit(signal.number()) != 0);
        Ok(has_all.then_some(registered))
    }

    fn register(
        signals: &[Signal],
        latches: Vec<Arc<Latch>>,
        flag: Option<Arc<Wake>>,
    ) -> io::Result<SignalLatches> {
        set_base();
        let mut registrations = writer_list();
        let mut set = 0;
        for signal in signals {
            if imp::can_arrive(*signal)? {
                set |= bit(signal.number());
            }
        }
        let new = set & !handled_set(&registrations);
        for signal in signals_in(new) {
            imp::record_previous(signal)?;
        }
        // From here on an error return drops it, which undoes the change.
        let registered = SignalLatches { set, arrivals: Arc::default() };
        let arrivals = Arc::clone(&registered.arrivals);
        registrations.push(Registration { set, latches, flag, arrivals });
        publish(&registrations);
        let installed = signals_in(new).try_for_each(imp::install);
        drop(registrations);
        installed.map(|()| registered)
    }

    /// Adds a latch, for the signal after those that the other latches take.
    pub fn push(&self, latch: Arc<Latch>) {
        let mut registrations = writer_list();
        let ours =
            |registration: &&mut Registration| Arc::ptr_eq(&registration.arrivals, &self.arrivals);
        if let Some(registration) = registrations.iter_mut().find(ours) {
            registration.latches.push(latch);
        }
        publish(&registrations);
    }

    /// Returns the signal that arrived first.
    #[must_use]
    pub fn first(&self) -> Option<Signal> {
        Signal::from_number(self.arrivals.first.load(Ordering::SeqCst))
    }

    /// Returns the number of signals that have arrived.
    #[must_use]
    pub fn count(&self) -> usize {
        self.arrivals.count.load(Ordering::SeqCst)
    }
}

impl Drop for SignalLatches {
    fn drop(&mut self) {
        let mut registrations = writer_list();
        registrations.retain(|registration| !Arc::ptr_eq(&registration.arrivals, &self.arrivals));
        // Before the latches are removed: signals from here on have their previous effect.
        for signal in signals_in(self.set & !handled_set(&registrations)) {
            imp::restore(signal);
        }
        publish(&registrations);
    }
}

impl Registration {
    /// Records an arrival. Neither locks nor allocates.
    fn record(&self, number: i32) -> Delivery {
        if let Some(flag) = &self.flag {
            flag.raise();
            return Delivery::Handled;
        }
        let Arrivals { count, first, last } = &*self.arrivals;
        // SAFETY: null, or leaked by `set_base`.
        let base = unsafe { BASE.load(Ordering::Acquire).as_ref() };
        let now = base.map_or(0, |base| base.elapsed().as_millis() as u64) + 1;
        let before = last.load(Ordering::SeqCst);
        let is_apart = before == 0 || now >= before + COALESCE_MS;
        let ours = |order| last.compare_exchange(before, now, order, order).is_ok();
        if !is_apart || !ours(Ordering::SeqCst) {
            return Delivery::Handled;
        }
        let _ = first.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
        match self.latches.get(count.fetch_add(1, Ordering::SeqCst)) {
            Some(latch) => {
                latch.raise();
                Delivery::Handled
            }
            None => Delivery::Exhausted,
        }
    }
}

/// Raises the latches that are due. The handler calls it, so it neither locks nor allocates. Calls
/// `on_exhausted` if every latch was already raised; the drop of a registration cannot finish
/// before that call returns.
fn deliver(number: i32, on_exhausted: impl FnOnce()) -> Delivery {
    with_list(|registrations| {
        let matching =
            registrations.iter().filter(|registration| registration.set & bit(number) != 0);
        // Each one records it. The latches are exhausted only if no registration has one left.
        let delivered = matching
            .map(|registration| registration.record(number))
            .min()
            .unwrap_or(Delivery::Unhandled);
        if delivered == Delivery::Exhausted {
            on_exhausted();
        }
        delivered
    })
}

/// Passes the list that handlers read to `look`, and keeps it from being freed meanwhile. Neither
/// locks nor allocates.
fn with_list<T>(look: impl FnOnce(&[Registration]) -> T) -> T {
    let here = this_process();
    let enter = |inside| Some(if inside & !COUNT_MASK == here { inside + 1 } else { here + 1 });
    // Ignored: the update never fails.
    let _ = RUNNING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enter);
    let list = LIST.load(Ordering::SeqCst);
    // SAFETY: null, or from a box that is not freed while a handler is running.
    let registrations = unsafe { list.as_ref() }.map_or(&[][..], Vec::as_slice);
    let seen = look(registrations);
    // The count of this process: no fork happens inside, so it contains the increment above.
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    seen
}

/// Returns a copy of the list that handlers read.
fn handler_list() -> Vec<Registration> {
    with_list(<[Registration]>::to_vec)
}

/// Returns the upper half of [`RUNNING`] for this process.
fn this_process() -> u64 {
    Generation::current().number() << 32
}

/// Returns true if a registration handles the signal with that number. Not for a Unix handler: it
/// takes a lock.
#[cfg(windows)]
fn is_handled(number: i32) -> bool {
    writer_list().iter().any(|registration| registration.set & bit(number) != 0)
}

/// Replaces the list that handlers read.
fn publish(registrations: &[Registration]) {
    let new = Box::into_raw(Box::new(registrations.to_vec()));
    let old = LIST.swap(new, Ordering::SeqCst);
    // A handler that starts after this reads the new list. A handler takes microseconds.
    while is_handler_running() {
        thread::yield_now();
    }
    if !old.is_null() {
        // SAFETY: from a box, removed only under the lock, and no longer read by any handler.
        drop(unsafe { Box::from_raw(old) });
    }
}

/// Sets [`BASE`] if it is not set. Takes no lock: a fork could wait for it forever.
fn set_base() {
    let none = ptr::null_mut();
    if BASE.load(Ordering::Relaxed).is_null() {
        let new = Box::into_raw(Box::new(Instant::now()));
        if BASE.compare_exchange(none, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: allocated above, and shared with no other thread.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

fn is_handler_running() -> bool {
    let inside = RUNNING.load(Ordering::SeqCst);
    inside & !COUNT_MASK == this_process() && inside & COUNT_MASK != 0
}

fn writer_list() -> MutexGuard<'static, Vec<Registration>> {
    // A vector is consistent between calls.
    WRITER_LIST.get().lock().unwrap_or_else(PoisonError::into_inner)
}

fn handled_set(registrations: &[Registration]) -> u64 {
    registrations.iter().fold(0, |set, registration| set | registration.set)
}

fn bit(number: i32) -> u64 {
    1 << (number - 1)
}

fn signals_in(set: u64) -> impl Iterator<Item = Signal> {
    (1..=64).filter(move |number| set & bit(*number) != 0).filter_map(Signal::from_number)
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;
    use crate::base::wait::{self, Slot};

    #[test]
    fn every_arrival_raises_the_flag_and_the_signal_has_its_effect_again_afterwards() {
        // A signal that ends the process if it is not handled, and that no other test takes.
        let flag = SignalFlag::install(&[Signal::ABRT]).unwrap().unwrap();
        for _ in 0..3 {
            assert!(!flag.wake().is_raised());
            Signal::ABRT.raise();
            let until = Some(Instant::now() + Duration::from_secs(60));
            assert_eq!(wait::any(&mut [Slot::Event(flag.wake())], until).unwrap(), 1);
            flag.wake().lower();
        }
        drop(flag);
        let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only queries, into a live struct.
        let asked = unsafe { libc::sigaction(libc::SIGABRT, std::ptr::null(), now.as_mut_ptr()) };
        assert_eq!(asked, 0);
        // SAFETY: initialized by the call.
        assert_eq!(unsafe { now.assume_init() }.sa_sigaction, libc::SIG_DFL);
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod fork_tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::base::generation::tests::in_a_fork;

    /// Forks a process that registers and drops latches of its own, then drops the inherited ones.
    /// Returns true if both work there.
    fn works_in_a_fork(inherited: &mut Option<SignalLatches>) -> bool {
        in_a_fork(|| {
            // The test must fail, not hang.
            // SAFETY: an integer argument.
            unsafe { libc::alarm(60) };
            let (latch, number) = (Arc::new(Latch::default()), Signal::USR1.number());
            let Ok(set) = SignalLatches::install(&[Signal::USR1], Arc::clone(&latch)) else {
                return false;
            };
            let is_taken = deliver(number, || {}) == Delivery::Handled;
            let is_seen = latch.is_raised() && set.first() == Some(Signal::USR1);
            drop(set);
            let Some(inherited) = inherited.take() else { return false };
            let number = Signal::from_number(inherited.set.trailing_zeros() as i32 + 1);
            let deliver = || number.map(|number| deliver(number.number(), || {}));
            let before = deliver();
            drop(inherited);
            let is_over = deliver() == Some(Delivery::Unhandled);
            is_taken && is_seen && before != Some(Delivery::Unhandled) && is_over
        })
    }

    #[test]
    fn a_fork_does_not_wait_for_a_handler_of_its_parent() {
        let registered = SignalLatches::install(&[Signal::USR2], Arc::default()).unwrap();
        let number = Signal::USR2.number();
        assert_eq!(deliver(number, || {}), Delivery::Handled);
        // The next signal must not count as one with it.
        registered.arrivals.last.store(0, Ordering::SeqCst);
        let mut registered = Some(registered);
        let (inside, is_inside) = channel();
        let (leave, may_leave) = channel();
        let handler = thread::spawn(move || {
            deliver(number, || {
                inside.send(()).unwrap();
                may_leave.recv().unwrap();
            })
        });
        is_inside.recv().unwrap();
        let works = works_in_a_fork(&mut registered);
        leave.send(()).unwrap();
        assert_eq!(handler.join().unwrap(), Delivery::Exhausted);
        assert!(works);
    }

    #[test]
    fn a_fork_does_not_wait_for_a_change_of_its_parent() {
        // Not SIGHUP, SIGINT or SIGQUIT: `nohup` and shells start programs that ignore those.
        let mut registered = Some(SignalLatches::install(&[Signal::TERM], Arc::default()).unwrap());
        let change = writer_list();
        let works = works_in_a_fork(&mut registered);
        drop(change);
        assert!(works);
    }
}
