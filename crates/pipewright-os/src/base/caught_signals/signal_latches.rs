//! Latches that arriving signals raise, one after the other.
//!
//! The handler may run at any instruction of any thread, so it takes no lock and frees no memory: it
//! reads a list that is never changed. A change puts another list in its place, and frees the old one
//! when no handler is inside.
//!
//! A fork has the list, and neither the handlers that were inside nor whoever was changing it.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::imp;
use crate::base::generation::{Generation, PerProcess};
use crate::base::signal::Signal;
use crate::base::wake::Latch;

/// Signals that come closer together than this count once: a supervisor (`timeout`, `npm`) sends to
/// the process and to its group as well, and the terminal may have done so before.
const TOGETHER_MS: u64 = 100;

/// Signals that raise latches instead of having their usual effect, as long as this lives: the first
/// signal raises the first latch, and so on. The one after the last has the effect that it had
/// before.
///
/// # Platform
/// Unix: a handler (`sigaction`, `SA_RESTART`). Windows: `SetConsoleCtrlHandler`, with the signals of
/// [`CaughtSignals`](super::CaughtSignals).
///
/// # Drop
/// Gives the signals the effect that they had before, unless other code has set another one
/// meanwhile.
#[derive(Debug)]
pub struct Trip {
    set: u64,
    arrivals: Arc<Arrivals>,
}

/// The signals that have come for one trip.
#[derive(Debug, Default)]
struct Arrivals {
    count: AtomicUsize,
    first: AtomicI32,
    /// In milliseconds after [`BASE`]; 0: never.
    last: AtomicU64,
}

/// A trip, as the handler sees it.
#[derive(Debug, Clone)]
struct Entry {
    set: u64,
    latches: Vec<Arc<Latch>>,
    arrivals: Arc<Arrivals>,
}

/// The outcome of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Delivered {
    /// No trip wants this signal.
    ToNobody,
    Taken,
    /// Every latch was raised already.
    OneTooMany,
}

/// For the handler: never changed, but replaced.
static LIST: AtomicPtr<Vec<Entry>> = AtomicPtr::new(ptr::null_mut());
/// The number of handlers inside (lower half) and their process (upper half): a fork begins
/// with the count of the process that it is a copy of.
static INSIDE: AtomicU64 = AtomicU64::new(0);
const COUNT: u64 = u32::MAX as u64;
/// Changes of the list, one at a time. A fork begins with the list that handlers see.
static CHANGES: PerProcess<Mutex<Vec<Entry>>> = PerProcess::new(|| Mutex::new(shown()));
/// The time that arrivals are timed from. Set once, before any handler is.
static BASE: AtomicPtr<Instant> = AtomicPtr::new(ptr::null_mut());

impl Trip {
    /// Lets these signals raise that latch, apart from those that are ignored at the moment (`nohup`,
    /// a job in the background): they stay ignored.
    ///
    /// # Errors
    /// One of them cannot be handled (`KILL`, `STOP`).
    pub fn set(signals: &[Signal], latch: Arc<Latch>) -> io::Result<Trip> {
        begin_time();
        let mut entries = changes();
        let mut set = 0;
        for signal in signals {
            if imp::can_come(*signal)? {
                set |= bit(signal.number());
            }
        }
        let new = set & !wanted(&entries);
        for signal in each(new) {
            imp::prepare(signal)?;
        }
        // From here on a drop undoes it.
        let trip = Trip { set, arrivals: Arc::default() };
        let arrivals = Arc::clone(&trip.arrivals);
        entries.push(Entry { set, latches: vec![latch], arrivals });
        publish(&entries);
        let installed = each(new).try_for_each(imp::install);
        drop(entries);
        installed.map(|()| trip)
    }

    /// One more latch, for the signal after those that the others take.
    pub fn then(&self, latch: Arc<Latch>) {
        let mut entries = changes();
        let ours = |entry: &&mut Entry| Arc::ptr_eq(&entry.arrivals, &self.arrivals);
        if let Some(entry) = entries.iter_mut().find(ours) {
            entry.latches.push(latch);
        }
        publish(&entries);
    }

    /// Returns the signal that came first.
    #[must_use]
    pub fn first(&self) -> Option<Signal> {
        Signal::from_number(self.arrivals.first.load(Ordering::SeqCst))
    }

    /// Returns how many signals have come.
    #[must_use]
    pub fn count(&self) -> usize {
        self.arrivals.count.load(Ordering::SeqCst)
    }
}

impl Drop for Trip {
    fn drop(&mut self) {
        let mut entries = changes();
        entries.retain(|entry| !Arc::ptr_eq(&entry.arrivals, &self.arrivals));
        // Before its latches go: what comes from here on has its usual effect.
        for signal in each(self.set & !wanted(&entries)) {
            imp::restore(signal);
        }
        publish(&entries);
    }
}

impl Entry {
    /// Neither locks nor allocates.
    fn note(&self, number: i32) -> Delivered {
        let Arrivals { count, first, last } = &*self.arrivals;
        // SAFETY: null, or leaked by `begin_time`.
        let base = unsafe { BASE.load(Ordering::Acquire).as_ref() };
        let now = base.map_or(0, |base| base.elapsed().as_millis() as u64) + 1;
        let before = last.load(Ordering::SeqCst);
        let is_apart = before == 0 || now >= before + TOGETHER_MS;
        let ours = |order| last.compare_exchange(before, now, order, order).is_ok();
        if !is_apart || !ours(Ordering::SeqCst) {
            return Delivered::Taken;
        }
        let _ = first.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
        match self.latches.get(count.fetch_add(1, Ordering::SeqCst)) {
            Some(latch) => {
                latch.raise();
                Delivered::Taken
            }
            None => Delivered::OneTooMany,
        }
    }
}

/// Raises the latches that are due. Called by the handler, so it neither locks nor allocates.
/// `one_too_many` is called where every latch was raised already, while nothing can be restored.
pub(super) fn deliver(number: i32, one_too_many: impl FnOnce()) -> Delivered {
    inside(|entries| {
        let wanting = entries.iter().filter(|entry| entry.set & bit(number) != 0);
        // Each notes it. It is one too many only if no trip has a latch left.
        let delivered =
            wanting.map(|entry| entry.note(number)).min().unwrap_or(Delivered::ToNobody);
        if delivered == Delivered::OneTooMany {
            one_too_many();
        }
        delivered
    })
}

/// Lends the list that handlers see, which is not freed meanwhile. Neither locks nor allocates.
fn inside<T>(look: impl FnOnce(&[Entry]) -> T) -> T {
    let here = this_process();
    let enter = |inside| Some(if inside & !COUNT == here { inside + 1 } else { here + 1 });
    // Ignored: it always enters.
    let _ = INSIDE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enter);
    let list = LIST.load(Ordering::SeqCst);
    // SAFETY: it is null or came from a box, which is not freed while a handler is inside.
    let entries = unsafe { list.as_ref() }.map_or(&[][..], Vec::as_slice);
    let seen = look(entries);
    // Of this process: who forks is not in here, and so nobody leaves a count that was not entered.
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    seen
}

/// Returns a copy of the list that handlers see.
fn shown() -> Vec<Entry> {
    inside(<[Entry]>::to_vec)
}

/// Returns what the upper half of [`INSIDE`] is for this process.
fn this_process() -> u64 {
    Generation::current().number() << 32
}

/// True if a trip wants the signal of that number. Not for a Unix handler: it takes a lock.
#[cfg(windows)]
pub(super) fn is_wanted(number: i32) -> bool {
    changes().iter().any(|entry| entry.set & bit(number) != 0)
}

/// Shows handlers another list.
fn publish(entries: &[Entry]) {
    let new = Box::into_raw(Box::new(entries.to_vec()));
    let old = LIST.swap(new, Ordering::SeqCst);
    // Who comes in after this has the new list. A handler takes microseconds.
    while is_anyone_inside() {
        thread::yield_now();
    }
    if !old.is_null() {
        // SAFETY: it came from a box, only the lock's holder takes it out, and nobody reads it.
        drop(unsafe { Box::from_raw(old) });
    }
}

/// Sets [`BASE`], where it is not set. No lock that a fork would wait for.
fn begin_time() {
    let none = ptr::null_mut();
    if BASE.load(Ordering::Relaxed).is_null() {
        let new = Box::into_raw(Box::new(Instant::now()));
        if BASE.compare_exchange(none, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: made above, and shown to nobody.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

fn is_anyone_inside() -> bool {
    let inside = INSIDE.load(Ordering::SeqCst);
    inside & !COUNT == this_process() && inside & COUNT != 0
}

fn changes() -> MutexGuard<'static, Vec<Entry>> {
    // A vector is whole between calls.
    CHANGES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

fn wanted(entries: &[Entry]) -> u64 {
    entries.iter().fold(0, |set, entry| set | entry.set)
}

fn bit(number: i32) -> u64 {
    1 << (number - 1)
}

fn each(set: u64) -> impl Iterator<Item = Signal> {
    (1..=64).filter(move |number| set & bit(*number) != 0).filter_map(Signal::from_number)
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::base::generation::tests::in_a_fork;

    /// Forks a process that sets a trip, and drops it and that one, and checks what they do there.
    fn works_in_a_fork(inherited: &mut Option<Trip>) -> bool {
        in_a_fork(|| {
            // It is to fail, not to hang.
            // SAFETY: a number.
            unsafe { libc::alarm(60) };
            let (latch, number) = (Arc::new(Latch::default()), Signal::USR1.number());
            let Ok(set) = Trip::set(&[Signal::USR1], Arc::clone(&latch)) else { return false };
            let is_taken = deliver(number, || {}) == Delivered::Taken;
            let is_seen = latch.is_up() && set.first() == Some(Signal::USR1);
            drop(set);
            let Some(inherited) = inherited.take() else { return false };
            let number = Signal::from_number(inherited.set.trailing_zeros() as i32 + 1);
            let deliver = || number.map(|number| deliver(number.number(), || {}));
            let before = deliver();
            drop(inherited);
            let is_over = deliver() == Some(Delivered::ToNobody);
            is_taken && is_seen && before != Some(Delivered::ToNobody) && is_over
        })
    }

    #[test]
    fn a_fork_waits_for_no_handler_that_is_not_in_it() {
        let trip = Trip::set(&[Signal::USR2], Arc::default()).unwrap();
        let number = Signal::USR2.number();
        assert_eq!(deliver(number, || {}), Delivered::Taken);
        // The next one does not come together with it.
        trip.arrivals.last.store(0, Ordering::SeqCst);
        let mut trip = Some(trip);
        let (inside, is_inside) = channel();
        let (leave, may_leave) = channel();
        let handler = thread::spawn(move || {
            deliver(number, || {
                inside.send(()).unwrap();
                may_leave.recv().unwrap();
            })
        });
        is_inside.recv().unwrap();
        let works = works_in_a_fork(&mut trip);
        leave.send(()).unwrap();
        assert_eq!(handler.join().unwrap(), Delivered::OneTooMany);
        assert!(works);
    }

    #[test]
    fn a_fork_waits_for_no_change_that_nobody_makes_there() {
        let mut trip = Some(Trip::set(&[Signal::HUP], Arc::default()).unwrap());
        let change = changes();
        let works = works_in_a_fork(&mut trip);
        drop(change);
        assert!(works);
    }
}
