//! How long to wait: not less than was asked for, and not a whole tick of the clock more.

use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::time::{Duration, Instant};

use windows_sys::Win32::System::Threading::{
    CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, CreateWaitableTimerExW, INFINITE,
    SYNCHRONIZATION_SYNCHRONIZE, SetWaitableTimer, TIMER_MODIFY_STATE,
};

/// What a wait in milliseconds is longer by, at worst: a tick of the clock. What is nearer is
/// waited for with a timer.
const TICK: Duration = Duration::from_millis(16);
/// A deadline further away is waited for in pieces: no conversion can then overflow.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// One wait of the system.
pub(super) struct Limit<'a> {
    pub(super) ms: u32,
    /// Comes first.
    pub(super) timer: Option<BorrowedHandle<'a>>,
}

pub(super) struct Pause {
    deadline: Option<Instant>,
    timer: Option<OwnedHandle>,
}

impl Pause {
    pub(super) fn until(deadline: Option<Instant>) -> Pause {
        Pause { deadline, timer: None }
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// No time at all.
    pub(super) fn none(&self) -> Limit<'_> {
        Limit { ms: 0, timer: None }
    }

    /// The next wait; it may end before the deadline.
    pub(super) fn next(&mut self, sooner: Option<Instant>) -> Limit<'_> {
        let Some(until) = [self.deadline, sooner].into_iter().flatten().min() else {
            return Limit { ms: INFINITE, timer: None };
        };
        let left = until.saturating_duration_since(Instant::now()).min(LONGEST_WAIT);
        if left.is_zero() {
            return self.none();
        }
        if left < TICK && self.set_timer(left) {
            // The timer ends it.
            return Limit { ms: INFINITE, timer: self.timer.as_ref().map(OwnedHandle::as_handle) };
        }
        // Rounded up: a wait that ends too early is followed by another.
        Limit { ms: left.as_nanos().div_ceil(1_000_000) as u32, timer: None }
    }

    /// `false`: there is no timer of this kind (before Windows 10 1803).
    fn set_timer(&mut self, left: Duration) -> bool {
        if self.timer.is_none() {
            self.timer = make_timer();
        }
        let Some(timer) = &self.timer else { return false };
        // In units of 100 ns; less than nothing is from now on.
        let due = -(left.as_nanos().div_ceil(100) as i64);
        // SAFETY: an open timer and a live number; nothing is called when it comes.
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
    // SAFETY: made by the call above, for nobody else.
    (!timer.is_null()).then(|| unsafe { OwnedHandle::from_raw_handle(timer) })
}
