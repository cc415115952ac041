//! Used resources: of a child that has ended, and of this process.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(unix)]
pub(crate) use unix::from_timeval;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;
#[cfg(windows)]
pub(crate) use windows::times_of;

use std::io;
use std::ops::Sub;
use std::time::Duration;

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
