//! The resource usage of the calling thread: its sleeps, and the bytes that disks transferred for it.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(not(target_os = "linux"))]
mod unknown;
#[cfg(not(target_os = "linux"))]
use unknown as imp;

/// The resource usage of a thread since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadUsage {
    /// The number of voluntary context switches: each is a sleep.
    pub sleeps: u64,
    /// The bytes that disks transferred for the thread, if [`counts_disk_bytes`]. The work of kernel threads
    /// is accounted to them.
    pub disk_bytes: u64,
}

/// Returns the usage of the calling thread. `None` if it is unknown.
///
/// # Platform
/// Linux: one call of `getrusage(RUSAGE_THREAD)`. Elsewhere `None`.
#[must_use]
#[doc(alias = "RUSAGE_THREAD")]
pub fn now() -> Option<ThreadUsage> {
    imp::now()
}

/// Returns true if this system counts the bytes that disks transfer for a thread. Otherwise the count stays 0.
///
/// # Platform
/// Linux: true if `/proc/thread-self/io` exists, which has the same counters. Elsewhere `false`.
#[must_use]
pub fn counts_disk_bytes() -> bool {
    imp::counts_disk_bytes()
}

/// Returns the number of kernel threads that work for io_uring calls of the calling thread. `None` if it is
/// unknown.
///
/// # Platform
/// Linux: counts the threads of this process whose name is `iou-wrk-` and the thread's number. Elsewhere
/// `None`.
#[must_use]
pub fn kernel_workers() -> Option<usize> {
    imp::kernel_workers()
}
