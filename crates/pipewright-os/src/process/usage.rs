//! Used resources: of a child that has ended, and of this process.

use std::io;
use std::ops::Sub;
use std::time::Duration;

#[cfg(unix)]
pub(crate) use imp::from_timeval;
#[cfg(windows)]
pub(crate) use imp::times_of;

/// The resources used up to a moment, or between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// CPU time, in user mode and in the kernel.
    pub cpu: Duration,
    /// The number of times that a thread gave up its processor or had to. `None`: unknown.
    pub switches: Option<u64>,
}

/// The usage of a process, on Unix including its own reaped children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// The largest amount of memory in use at one time, in bytes.
    ///
    /// `None` if unknown: Linux counts the memory of the *parent* at the time of the start as the child's
    /// own (`exec_mmap` adds it, getrusage(2)), so for a child that stayed below that only an upper bound
    /// is known. macOS counts only the child's. Windows: the peak of the working set.
    pub peak_rss_bytes: Option<u64>,
    /// The number of times that it gave up its processor or had to. `None`: unknown, as on Windows.
    pub switches: Option<u64>,
    /// The kernel's figure, which may include the parent's.
    pub(crate) counted_peak_rss_bytes: Option<u64>,
}

/// The usage of a whole tree, with every process that was ever in it. A figure that the system does not report is
/// `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TreeUsage {
    /// CPU time in user mode.
    pub user: Option<Duration>,
    /// CPU time in the kernel.
    pub system: Option<Duration>,
    /// The largest amount of memory in use at one time, in bytes, cached file data included.
    pub peak_memory_bytes: Option<u64>,
    /// The largest number of processes and threads at one time.
    pub peak_pids: Option<u64>,
    /// The time in which at least one thread waited for memory.
    pub memory_stall: Option<Duration>,
    /// The time in which at least one thread waited for a processor.
    pub cpu_stall: Option<Duration>,
    /// The time in which at least one thread waited for I/O.
    pub io_stall: Option<Duration>,
}

/// Returns the resources that all threads of this process have used since its start, without those of
/// children.
///
/// # Platform
/// Unix: `getrusage(RUSAGE_SELF)`. Windows: `GetProcessTimes`, in steps of up to 16 ms; it does not count
/// switches.
///
/// # Errors
/// None in practice.
#[doc(alias = "getrusage")]
pub fn of_this_process() -> io::Result<Spent> {
    imp::of_this_process()
}

impl Sub for Spent {
    type Output = Spent;

    fn sub(self, earlier: Spent) -> Spent {
        let switches = self.switches.zip(earlier.switches);
        Spent {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            switches: switches.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// Returns the number of context switches.
#[cfg(unix)]
pub(crate) fn switches_of(usage: &libc::rusage) -> Option<u64> {
    u64::try_from(usage.ru_nvcsw + usage.ru_nivcsw).ok()
}

/// `getrusage`.
#[cfg(unix)]
mod imp {
    use std::io;
    use std::time::Duration;

    use super::Spent;

    pub(super) fn of_this_process() -> io::Result<Spent> {
        // SAFETY: plain integers, for which all zeroes is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a live struct.
        if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Spent {
            cpu: from_timeval(usage.ru_utime) + from_timeval(usage.ru_stime),
            switches: super::switches_of(&usage),
        })
    }

    pub(crate) fn from_timeval(time: libc::timeval) -> Duration {
        // Neither is ever negative.
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let micros = u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    }
}

/// `GetProcessTimes`.
#[cfg(windows)]
mod imp {
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
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::of_this_process;

    #[test]
    fn work_is_counted() {
        let before = of_this_process().unwrap();
        let start = Instant::now();
        // Windows counts in steps of up to 16 ms.
        while (of_this_process().unwrap() - before).cpu < Duration::from_millis(20) {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing is counted");
        }
        let spent = of_this_process().unwrap() - before;
        assert_eq!(spent.switches.is_some(), cfg!(unix));
    }
}
