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
}

/// What the calling thread has used. `None`: that cannot be known.
///
/// # Platform
/// Linux: `getrusage(RUSAGE_THREAD)`. Elsewhere `None`.
#[must_use]
#[doc(alias = "RUSAGE_THREAD")]
pub fn now() -> Option<ThreadUsage> {
    imp::now()
}

/// How many bytes the calling thread itself has had disks read and write.
///
/// What a worker of the kernel does for it is the worker's.
#[derive(Debug)]
pub struct DiskCounter(imp::DiskCounter);

impl DiskCounter {
    /// The counter of the calling thread. `None`: the system keeps none.
    ///
    /// # Platform
    /// Linux: `/proc/thread-self/io`. Elsewhere `None`.
    #[must_use]
    pub fn open() -> Option<DiskCounter> {
        imp::DiskCounter::open().map(DiskCounter)
    }

    /// Bytes read and written until now, together. `None`: it could not be read.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.0.bytes()
    }
}

/// How many workers of the kernel's io_uring serve the calling thread now. `None`: that cannot be known.
///
/// # Platform
/// Linux: the threads of this process that are called `iou-wrk-` and our number. Elsewhere `None`.
#[must_use]
pub fn kernel_workers() -> Option<usize> {
    imp::kernel_workers()
}
