//! Latches that arriving signals raise, one after the other.
//!
//! The handler may run at any instruction of any thread, so it takes no lock and frees no memory:
//! it reads an immutable list. A change installs another list, and frees the old one when no
//! handler is running.
//!
//! A fork inherits the list, but neither the running handlers nor a thread that is changing the
//! list.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::imp;
use crate::base::generation::{Generation, PerProcess};
use crate::base::signal::Signal;
use crate::base::wake::{Latch, Wake};

/// The interval within which several signals count as one. A supervisor (`timeout`, `npm`) signals
/// both the process and its group, and the terminal may have done so before.
const COALESCE_MS: u64 = 100;

/// Signals that raise latches instead of having their previous effect, as long as this lives: the
/// first signal raises the first latch, the second one the second, and so on. A signal after the
/// last latch has the effect that it had before.
///
/// # Platform
/// Unix: a handler (`sigaction`, `SA_RESTART`). Windows: `SetConsoleCtrlHandler`, with the signals
/// of [`CaughtSignals`](super::CaughtSignals).
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
pub(super) enum Delivery {
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
    pub(super) fn raise_each_time(
        signals: &[Signal],
        flag: Arc<Wake>,
    ) -> io::Result<Option<SignalLatches>> {
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
pub(super) fn deliver(number: i32, on_exhausted: impl FnOnce()) -> Delivery {
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
pub(super) fn is_handled(number: i32) -> bool {
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

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
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
