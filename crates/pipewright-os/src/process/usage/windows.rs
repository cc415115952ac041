//! `GetProcessTimes`.

use std::io;
use std::os::windows::io::{AsRawHandle as _, BorrowedHandle};
use std::time::Duration;

use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessTimes};

use super::Spent;

/// The start of a process, and the CPU time that it has used.
pub(crate) struct ProcessTimes {
    /// The start time, in units of 100 ns.
    pub(crate) created: u64,
    pub(crate) kernel: Duration,
    pub(crate) user: Duration,
}

pub(super) fn of_this_process() -> io::Result<Spent> {
    // SAFETY: no arguments; a pseudo handle, which is never closed.
    let own = unsafe { GetCurrentProcess() };
    // SAFETY: the handle means this process, and is valid as long as this process runs.
    let own = unsafe { BorrowedHandle::borrow_raw(own) };
    let times = times_of(own).ok_or_else(io::Error::last_os_error)?;
    Ok(Spent { cpu: times.kernel + times.user, switches: None })
}

/// Returns the times of a process; `None` if the handle does not allow the query.
pub(crate) fn times_of(process: BorrowedHandle<'_>) -> Option<ProcessTimes> {
    let mut times = [FILETIME::default(); 4];
    let [created, ended, kernel, user] = &mut times;
    // SAFETY: the handle is open, and each of the four is live.
    let ok = unsafe { GetProcessTimes(process.as_raw_handle(), created, ended, kernel, user) };
    let [created, _, kernel, user] = times.map(number);
    (ok != 0).then(|| ProcessTimes { created, kernel: duration(kernel), user: duration(user) })
}

fn number(time: FILETIME) -> u64 {
    (u64::from(time.dwHighDateTime) << 32) | u64::from(time.dwLowDateTime)
}

fn duration(of_100_ns: u64) -> Duration {
    Duration::from_nanos(of_100_ns.saturating_mul(100))
}
