//! Blocks signals, and takes them with calls that wait for them.

use std::fmt;
#[cfg(all(feature = "tokio", not(target_os = "linux")))]
use std::future::poll_fn;
use std::io;
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
#[cfg(target_os = "linux")]
use std::time::Duration;
use std::time::Instant;

use super::ArrivedSignal;
use crate::base::signal::{Signal, empty_set, group_of, is_ignored};
#[cfg(all(feature = "tokio", not(target_os = "linux")))]
use crate::base::wait::{Slot, Watch};
pub(super) use handler::{can_arrive, install, record_previous, restore};
#[cfg(all(feature = "tokio", target_os = "linux"))]
use ready::Ready;
#[cfg(not(target_os = "linux"))]
use sigwait_thread::SigwaitThread;

pub(super) struct Caught {
    #[cfg(target_os = "linux")]
    set: libc::sigset_t,
    is_empty: bool,
    #[cfg(not(target_os = "linux"))]
    thread: SigwaitThread,
}

impl Caught {
    pub(super) fn new(signals: &[Signal]) -> io::Result<Caught> {
        let (mut set, mut numbers) = (empty_set(), Vec::new());
        for signal in signals {
            if is_ignored(*signal)? {
                continue;
            }
            // SAFETY: a live set.
            if unsafe { libc::sigaddset(&raw mut set, signal.number()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            // They cannot be caught (sigprocmask(2)).
            if !matches!(*signal, Signal::KILL | Signal::STOP) {
                numbers.push(signal.number());
            }
        }
        // SAFETY: a live set, and no pointer for the old one.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(Caught {
            is_empty: numbers.is_empty(),
            #[cfg(target_os = "linux")]
            set,
            #[cfg(not(target_os = "linux"))]
            thread: SigwaitThread::new(&numbers)?,
        })
    }

    #[cfg(target_os = "linux")]
    pub(super) fn wait(&self) -> io::Result<ArrivedSignal> {
        self.check()?;
        arrived(wait_for_one_of(&self.set)?)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn wait(&self) -> io::Result<ArrivedSignal> {
        loop {
            if let Some(arrived) = self.wait_until(None)? {
                return Ok(arrived);
            }
        }
    }

    /// Needs no descriptor and no memory: a caller that could not wait would keep no time, and take no signal.
    #[cfg(target_os = "linux")]
    pub(super) fn wait_until(&self, until: Option<Instant>) -> io::Result<Option<ArrivedSignal>> {
        let Some(until) = until else { return self.wait().map(Some) };
        self.check()?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if let Some(taken) = take_one_of(&self.set, left)? {
                return arrived(taken).map(Some);
            }
            // Otherwise the signal of another handler has ended the wait.
            if until <= Instant::now() {
                return Ok(None);
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn wait_until(&self, until: Option<Instant>) -> io::Result<Option<ArrivedSignal>> {
        self.check()?;
        self.thread
            .wait_until(until)?
            .map(|number| arrived((number, sender_of(number))))
            .transpose()
    }

    #[cfg(all(feature = "tokio", target_os = "linux"))]
    pub(super) async fn wait_async(&self) -> io::Result<ArrivedSignal> {
        self.check()?;
        let ready = Ready::new(&self.set)?.register()?;
        loop {
            // Taken last: no await follows in which it could be dropped.
            if let Some(arrived) = self.take()? {
                return Ok(arrived);
            }
            let mut guard = ready.readable().await?;
            guard.clear_ready();
        }
    }

    #[cfg(all(feature = "tokio", not(target_os = "linux")))]
    pub(super) async fn wait_async(&self) -> io::Result<ArrivedSignal> {
        self.check()?;
        let mut watch = Watch::default();
        loop {
            // Taken last: no await follows in which it could be dropped.
            self.thread.wake().lower();
            if let Some(number) = self.thread.take() {
                return arrived((number, sender_of(number)));
            }
            let mut slots = [Slot::Event(self.thread.wake())];
            poll_fn(|cx| watch.poll_wait(cx, &mut slots, None)).await?;
        }
    }

    /// Returns an error if the set is empty: sigwait on it would wait for ever.
    fn check(&self) -> io::Result<()> {
        if self.is_empty { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    #[cfg(all(feature = "tokio", target_os = "linux"))]
    fn take(&self) -> io::Result<Option<ArrivedSignal>> {
        take_one_of(&self.set, Duration::ZERO)?.map(arrived).transpose()
    }
}

fn arrived((number, sender): (i32, Sender)) -> io::Result<ArrivedSignal> {
    let signal = Signal::from_number(number).ok_or(io::ErrorKind::InvalidData)?;
    let from_terminal = matches!(sender, Sender::Kernel);
    let from_own_group = matches!(sender, Sender::Process(pid) if is_in_own_group(pid));
    Ok(ArrivedSignal { signal, from_terminal, from_own_group })
}

/// The sender of a signal.
enum Sender {
    Kernel,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "not known"))]
    Process(i32),
    Unknown,
}

impl Sender {
    #[cfg(target_os = "linux")]
    fn of(info: &libc::siginfo_t) -> Sender {
        match info.si_code {
            libc::SI_KERNEL => Sender::Kernel,
            // SAFETY: a signal of kill(2) has the sender.
            libc::SI_USER => Sender::Process(unsafe { info.si_pid() }),
            _ => Sender::Unknown,
        }
    }
}

/// Returns the sender, which macOS does not tell. Ctrl-C, Ctrl-\ and Ctrl-Z reach the whole group in the foreground of
/// the terminal: with such a signal passed on, a command in this process's group would get each twice.
#[cfg(not(target_os = "linux"))]
fn sender_of(number: i32) -> Sender {
    if is_typed(number, is_in_foreground) { Sender::Kernel } else { Sender::Unknown }
}

#[cfg(any(test, not(target_os = "linux")))]
fn is_typed(number: i32, is_in_foreground: impl FnOnce() -> bool) -> bool {
    matches!(number, libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP) && is_in_foreground()
}

/// Returns true if this process's group has its terminal. An error is no.
#[cfg(any(test, not(target_os = "linux")))]
fn is_in_foreground() -> bool {
    use std::os::fd::AsRawFd as _;
    let Ok(terminal) = std::fs::File::open("/dev/tty") else { return false };
    // SAFETY: an open file.
    let foreground = unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) };
    group_of(0) == Some(foreground)
}

/// Returns true for another process of this process's group.
fn is_in_own_group(pid: i32) -> bool {
    let is_other = pid > 0 && pid.unsigned_abs() != std::process::id();
    is_other && group_of(pid).is_some_and(|group| group_of(0) == Some(group))
}

impl fmt::Debug for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caught").field("is_empty", &self.is_empty).finish_non_exhaustive()
    }
}

#[cfg(target_os = "linux")]
fn wait_for_one_of(set: &libc::sigset_t) -> io::Result<(i32, Sender)> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: a live set, and room for the result.
        let number = unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) };
        if number > 0 {
            // SAFETY: initialized by the call; and all zeroes was a valid value before.
            let info = unsafe { info.assume_init() };
            return Ok((number, Sender::of(&info)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes a signal that arrives within that time. `None`: none has, or the wait was interrupted.
#[cfg(target_os = "linux")]
fn take_one_of(set: &libc::sigset_t, limit: Duration) -> io::Result<Option<(i32, Sender)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let limit = libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: a live set, room for the result, and a live time.
    let number = unsafe { libc::sigtimedwait(set, info.as_mut_ptr(), &raw const limit) };
    if number > 0 {
        // SAFETY: initialized by the call; and all zeroes was a valid value before.
        let info = unsafe { info.assume_init() };
        return Ok(Some((number, Sender::of(&info))));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

#[cfg(not(target_os = "linux"))]
fn wait_for_one_of(set: &libc::sigset_t) -> io::Result<(i32, Sender)> {
    let mut number = 0;
    // SAFETY: a live set and a live integer.
    match unsafe { libc::sigwait(set, &raw mut number) } {
        0 => Ok((number, Sender::Unknown)),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

// The handler of signals that raise latches.
mod handler {
    use std::cell::UnsafeCell;
    use std::io;
    use std::mem::MaybeUninit;
    use std::ptr;

    use crate::base::caught_signals::{self, Delivery};
    use crate::base::signal::{Signal, is_ignored};

    /// The effects that the signals had before, each at the index of its number.
    static PREVIOUS: [Previous; 65] =
        [const { Previous(UnsafeCell::new(MaybeUninit::zeroed())) }; 65];

    struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);

    // SAFETY: an element is written under the lock of the registrations, before its signal has one, and
    // read while it has one: by the holder of the lock, or by a handler whose end the writer has waited
    // for.
    unsafe impl Sync for Previous {}

    /// Returns true if the signal can be handled: it is not ignored.
    pub(in super::super) fn can_arrive(signal: Signal) -> io::Result<bool> {
        if matches!(signal, Signal::KILL | Signal::STOP) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        is_ignored(signal).map(|is_ignored| !is_ignored)
    }

    /// Records the current effect of the signal. Called before any registration handles it.
    pub(in super::super) fn record_previous(signal: Signal) -> io::Result<()> {
        let Some(before) = element(signal.number()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // SAFETY: only queries, into an element that is not read yet.
        match unsafe { libc::sigaction(signal.number(), ptr::null(), before.cast()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Installs the handler.
    pub(in super::super) fn install(signal: Signal) -> io::Result<()> {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeroes is a valid value: the default, no flags, an empty set.
        let action = unsafe { action.assume_init_mut() };
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        // Restarts the system calls that permit it. Others return EINTR, as with every handler.
        action.sa_flags = libc::SA_RESTART;
        // No other handler interrupts this one.
        // SAFETY: a live set.
        unsafe { libc::sigfillset(&raw mut action.sa_mask) };
        // SAFETY: the handler is async-signal-safe: it takes no lock, uses no allocator, and preserves
        // errno.
        match unsafe { libc::sigaction(signal.number(), &raw const *action, ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Restores the recorded effect if the handler is still ours.
    pub(in super::super) fn restore(signal: Signal) {
        if current(signal.number()) == on_signal as *const () as libc::sighandler_t {
            reinstall(signal.number());
        }
    }

    /// Returns the handler that the signal has now.
    fn current(number: i32) -> libc::sighandler_t {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // Ignored, here and below: the number was valid when the handler was installed.
        // SAFETY: only queries, into a live struct.
        let _ = unsafe { libc::sigaction(number, ptr::null(), now.as_mut_ptr()) };
        // SAFETY: initialized by the call; and all zeroes was a valid value before.
        unsafe { now.assume_init() }.sa_sigaction
    }

    fn element(number: i32) -> Option<*mut MaybeUninit<libc::sigaction>> {
        let index = usize::try_from(number).ok()?;
        PREVIOUS.get(index).map(|before| before.0.get())
    }

    fn reinstall(number: i32) {
        if let Some(before) = element(number) {
            // SAFETY: written by `record_previous`, which is not called while a registration handles the
            // signal.
            let _ = unsafe { libc::sigaction(number, before.cast(), ptr::null_mut()) };
        }
    }

    /// Handles a signal. The system calls it between any two instructions of any thread.
    extern "C" fn on_signal(number: libc::c_int) {
        let errno = errno();
        // SAFETY: the errno of the calling thread, which lives as long as the thread.
        let before = unsafe { *errno };
        let takes_previous_effect = match caught_signals::deliver(number, || reinstall(number)) {
            Delivery::Handled => false,
            Delivery::Exhausted => true,
            // The signal was on its way when the registration was dropped. Or a handler installed after
            // ours forwards it: a raise would come back here for ever.
            Delivery::Unhandled => current(number) == libc::SIG_DFL,
        };
        if takes_previous_effect {
            // Takes effect when this returns: the signal is blocked until then. Ignored: the number is
            // valid.
            // SAFETY: an integer argument.
            let _ = unsafe { libc::raise(number) };
        }
        // SAFETY: as above.
        unsafe { *errno = before };
    }

    #[cfg(target_os = "linux")]
    fn errno() -> *mut libc::c_int {
        // SAFETY: no argument.
        unsafe { libc::__errno_location() }
    }

    #[cfg(target_os = "macos")]
    fn errno() -> *mut libc::c_int {
        // SAFETY: no argument.
        unsafe { libc::__error() }
    }
}

// A descriptor that is readable when a blocked signal has arrived: a signalfd.
//
// It only reports that there may be one. Another call takes the signal itself.
#[cfg(all(feature = "tokio", target_os = "linux"))]
mod ready {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

    #[derive(Debug)]
    pub(super) struct Ready(OwnedFd);

    impl Ready {
        pub(super) fn new(set: &libc::sigset_t) -> io::Result<Ready> {
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            // SAFETY: a live set, and no existing descriptor to change.
            let made = unsafe { libc::signalfd(-1, set, flags) };
            if made < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: made by the call just now, and owned by nothing else.
            Ok(Ready(unsafe { OwnedFd::from_raw_fd(made) }))
        }

        /// Registers it with the runtime of the task.
        pub(super) fn register(self) -> io::Result<tokio::io::unix::AsyncFd<Ready>> {
            crate::base::wait::current_runtime()?;
            // SAFETY: it owns the descriptor, which stays open and the same until the drop.
            let registered = unsafe {
                tokio::io::unix::AsyncFd::register_with_interest(
                    self,
                    tokio::io::Interest::READABLE,
                )
            };
            registered.map_err(io::Error::from)
        }
    }

    impl AsRawFd for Ready {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }
}

// Blocked signals that threads in `sigwait` take, for a system on which nothing else tells if one is pending.
//
// On macOS a signal of the process is pending at one of its threads. `sigpending` shows those of the calling thread
// alone, a kqueue (`EVFILT_SIGNAL`) counts arrivals and not what is pending, and `sigwait`, which looks at all threads,
// has no time limit. So a thread waits in it for as long as the process lives, and the others wait for that thread.
#[cfg(any(test, not(target_os = "linux")))]
mod sigwait_thread {
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
        /// Has a thread wait for those signals, which every thread blocks. The thread stays: a signal that nobody waits
        /// for any more is kept.
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
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn only_signals_of_keys_are_typed_and_only_in_the_foreground() {
        for number in [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP] {
            assert!(is_typed(number, || true));
            assert!(!is_typed(number, || false));
        }
        for number in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
            assert!(!is_typed(number, || true));
        }
        // Either may be true here; it neither fails nor waits.
        let _ = is_in_foreground();
    }
}
