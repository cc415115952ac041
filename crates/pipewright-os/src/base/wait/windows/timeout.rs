//! Computes the timeout of a wait: never shorter than requested, and not a whole clock tick longer.

use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::time::{Duration, Instant};

use windows_sys::Win32::System::Threading::{
    CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, CreateWaitableTimerExW, INFINITE,
    SYNCHRONIZATION_SYNCHRONIZE, SetWaitableTimer, TIMER_MODIFY_STATE,
};

/// The most by which a wait in milliseconds is too long: one clock tick. A nearer deadline gets a
/// timer.
const TICK: Duration = Duration::from_millis(16);
/// The longest single wait. A deadline further away takes several, so that no conversion can
/// overflow.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The limits of one system call.
pub(super) struct WaitLimit<'a> {
    pub(super) ms: u32,
    /// Signalled earlier than `ms`.
    pub(super) timer: Option<BorrowedHandle<'a>>,
}

pub(super) struct Timeout {
    deadline: Option<Instant>,
    timer: Option<OwnedHandle>,
}

impl Timeout {
    pub(super) fn at(deadline: Option<Instant>) -> Timeout {
        Timeout { deadline, timer: None }
    }

    /// Returns true if the deadline has passed.
    pub(super) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Returns the limit of a call that must not wait.
    pub(super) fn immediate(&self) -> WaitLimit<'_> {
        WaitLimit { ms: 0, timer: None }
    }

    /// Returns the limit of the next call, which may end before the deadline.
    pub(super) fn next(&mut self, sooner: Option<Instant>) -> WaitLimit<'_> {
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
