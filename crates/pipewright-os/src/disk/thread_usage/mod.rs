//! What the calling thread has used: how often it slept, and what it had the disks do.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(not(target_os = "linux"))]
mod unknown;
#[cfg(not(target_os = "linux"))]
use unknown as imp;

/// What a thread has used since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadUsage {
    /// How often it gave its processor up by itself: each is a sleep.
    pub sleeps: u64,
    /// How many bytes it has had disks read and write, where [`counts_disk_bytes`]. What a worker of the kernel
    /// does for it is the worker's.
    pub disk_bytes: u64,
}

/// What the calling thread has used. `None`: that cannot be known.
///
/// # Platform
/// Linux: `getrusage(RUSAGE_THREAD)`, one call for both. Elsewhere `None`.
#[must_use]
#[doc(alias = "RUSAGE_THREAD")]
pub fn now() -> Option<ThreadUsage> {
    imp::now()
}

/// Whether this system counts what a thread has disks do. Where it does not, the count stays 0.
///
/// # Platform
/// Linux: whether there is a `/proc/thread-self/io`, which has the same counters. Elsewhere `false`.
#[must_use]
pub fn counts_disk_bytes() -> bool {
    imp::counts_disk_bytes()
}

/// How many workers of the kernel's io_uring serve the calling thread now. `None`: that cannot be known.
///
/// # Platform
/// Linux: the threads of this process that are called `iou-wrk-` and our number. Elsewhere `None`.
#[must_use]
pub fn kernel_workers() -> Option<usize> {
    imp::kernel_workers()
}
