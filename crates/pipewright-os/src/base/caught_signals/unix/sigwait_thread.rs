//! Blocked signals that threads in `sigwait` take, for a system on which nothing else tells if one is pending.
//!
//! On macOS a signal of the process is pending at one of its threads. `sigpending` shows those of the calling thread alone, a kqueue
//! (`EVFILT_SIGNAL`) counts arrivals and not what is pending, and `sigwait`, which looks at all threads, has no time limit. So a thread
//! waits in it for as long as the process lives, and the others wait for that thread.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::wait_for_one_of;
use crate::base::generation::PerProcess;
use crate::base::service_thread;
use crate::base::signal::empty_set;
use crate::base::wait::{self, Slot};
use crate::base::wake::Wake;

/// A set of signals: the bit of each is at its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Numbers(u64);

impl Numbers {
    fn of(numbers: impl IntoIterator<Item = i32>) -> Numbers {
        let bit = |number: i32| u32::try_from(number).ok().and_then(|it| 1_u64.checked_shl(it));
        Numbers(numbers.into_iter().filter_map(bit).fold(0, |all, bit| all | bit))
    }

    fn without(self, others: Numbers) -> Numbers {
        Numbers(self.0 & !others.0)
    }

    fn iter(self) -> impl Iterator<Item = i32> {
        (0..64).filter(move |number| self.0 >> number & 1 == 1)
    }

    /// Takes out the first that is wanted.
    fn take_one_of(&mut self, wanted: Numbers) -> Option<i32> {
        let first = Numbers(self.0 & wanted.0).iter().next()?;
        self.0 &= !(1 << first);
        Some(first)
    }
}

#[derive(Default)]
struct State {
    /// Those that have arrived and were not taken: each once, as the kernel keeps them.
    arrived: Numbers,
    /// Those that a thread waits for.
    watched: Numbers,
    waiters: Vec<Weak<Wake>>,
}

/// A fork has no such thread, so it has no signal that one has taken.
static STATE: PerProcess<Mutex<State>> = PerProcess::new(Mutex::default);

fn state() -> MutexGuard<'static, State> {
    // Sets, which are consistent at any time.
    STATE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Signals of which this waiter gets those that nobody else has taken.
#[derive(Debug)]
pub(super) struct SigwaitThread {
    wanted: Numbers,
    wake: Arc<Wake>,
}

impl SigwaitThread {
    /// Has a thread wait for those signals, which every thread blocks. The thread stays: a signal that nobody waits for any more is kept.
    pub(super) fn new(numbers: &[i32]) -> io::Result<SigwaitThread> {
        let (wanted, wake) = (Numbers::of(numbers.iter().copied()), Arc::new(Wake::new()?));
        let mut state = state();
        let unwatched = wanted.without(state.watched);
        if unwatched != Numbers::default() {
            service_thread::start(c"pw-signals", move || take_for_ever(unwatched))?;
            state.watched.0 |= unwatched.0;
        }
        state.waiters.retain(|waiter| waiter.strong_count() > 0);
        state.waiters.push(Arc::downgrade(&wake));
        Ok(SigwaitThread { wanted, wake })
    }

    /// Takes a signal that has arrived.
    pub(super) fn take(&self) -> Option<i32> {
        state().arrived.take_one_of(self.wanted)
    }

    /// Waits for a signal, or until the deadline.
    pub(super) fn wait_until(&self, until: Option<Instant>) -> io::Result<Option<i32>> {
        loop {
            // First: an arrival after it raises the flag again.
            self.wake.lower();
            if let Some(number) = self.take() {
                return Ok(Some(number));
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(None);
            }
            wait::any(&mut [Slot::Event(&*self.wake)], until)?;
        }
    }

    /// Returns the flag that each arrival raises.
    #[cfg(all(feature = "tokio", not(target_os = "linux")))]
    pub(super) fn wake(&self) -> &Wake {
        &self.wake
    }
}

/// Takes the signals one by one, for as long as the process lives.
fn take_for_ever(numbers: Numbers) {
    let mut set = empty_set();
    for number in numbers.iter() {
        // SAFETY: a live set; a number that is no signal's is refused.
        unsafe { libc::sigaddset(&raw mut set, number) };
    }
    loop {
        match wait_for_one_of(&set) {
            Ok((number, _)) => note(number),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Only an invalid set is an error.
            Err(_) => return,
        }
    }
}

/// Records an arrival, and wakes the waiters.
fn note(number: i32) {
    let mut state = state();
    state.arrived.0 |= Numbers::of([number]).0;
    for waiter in state.waiters.iter().filter_map(Weak::upgrade) {
        waiter.raise();
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_signal_is_taken_once_and_only_by_who_wants_it() {
        let mut arrived = Numbers::of([2, 15, 15]);
        assert_eq!(arrived.take_one_of(Numbers::of([1])), None);
        assert_eq!(arrived.take_one_of(Numbers::of([15, 2])), Some(2));
        assert_eq!(arrived.take_one_of(Numbers::of([15, 2])), Some(15));
        assert_eq!(arrived.take_one_of(Numbers::of([15, 2])), None);
        assert_eq!(Numbers::of([-1, 64, 1000]), Numbers::default());
    }

    /// Numbers that nothing sends: each stands for a signal that the thread has taken.
    #[test]
    fn a_waiter_sees_every_arrival_and_none_of_others() {
        let [ours, theirs] = [40, 41].map(|number| SigwaitThread::new(&[number]).unwrap());
        let soon = || Some(Instant::now() + Duration::from_millis(1));
        assert_eq!(ours.wait_until(soon()).unwrap(), None);
        // Before the wait, during it, and after it.
        note(40);
        assert_eq!(ours.wait_until(None).unwrap(), Some(40));
        thread::scope(|scope| {
            let waits = scope.spawn(|| ours.wait_until(None).unwrap());
            note(41);
            note(40);
            assert_eq!(waits.join().unwrap(), Some(40));
        });
        assert_eq!(ours.wait_until(soon()).unwrap(), None);
        assert_eq!(theirs.wait_until(None).unwrap(), Some(41));
        // One that nobody waits for is kept.
        drop(theirs);
        note(41);
        assert_eq!(SigwaitThread::new(&[41]).unwrap().take(), Some(41));
    }
}
