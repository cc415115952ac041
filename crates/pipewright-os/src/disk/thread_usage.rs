//! The resource usage of the calling thread: its sleeps, and the bytes that disks transferred for it.

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

// `getrusage(RUSAGE_THREAD)`, `/proc/self/task`.
#[cfg(target_os = "linux")]
mod imp {
    use std::fs;
    use std::mem::MaybeUninit;

    use super::ThreadUsage;

    pub(super) fn now() -> Option<ThreadUsage> {
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: the calling thread, and space for the struct.
        let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
        if result != 0 {
            return None;
        }
        // SAFETY: filled in by the successful call.
        let usage = unsafe { usage.assume_init() };
        // In units of 512 bytes.
        let blocks = usage.ru_inblock as u64 + usage.ru_oublock as u64;
        Some(ThreadUsage { sleeps: usage.ru_nvcsw as u64, disk_bytes: blocks * 512 })
    }

    pub(super) fn kernel_workers() -> Option<usize> {
        // The kernel cuts names at 15 bytes.
        let mut name = format!("iou-wrk-{}", rustix::thread::gettid().as_raw_nonzero());
        name.truncate(15);
        let tasks = fs::read_dir("/proc/self/task").ok()?.flatten();
        let is_worker = |task: &fs::DirEntry| {
            // A thread that has ended meanwhile doesn't count.
            fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        Some(tasks.filter(is_worker).count())
    }

    pub(super) fn counts_disk_bytes() -> bool {
        // The file exists if the kernel has the counters (CONFIG_TASK_IO_ACCOUNTING).
        fs::metadata("/proc/thread-self/io").is_ok()
    }

    #[cfg(test)]
    mod tests {
        use std::os::unix::fs::FileExt as _;

        use super::{counts_disk_bytes, now};

        /// Returns `read_bytes` plus `write_bytes`: the bytes transferred by disks, not by calls (proc_pid_io(5)).
        fn proc_disk_bytes() -> u64 {
            let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
            let field = |name| text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            ["read_bytes: ", "write_bytes: "]
                .map(|name| field(name).parse::<u64>().unwrap())
                .iter()
                .sum()
        }

        /// Compares the two. The looks themselves may have the code that they run read from the disk, so a look that
        /// nothing was read around counts.
        #[track_caller]
        fn are_equal() {
            loop {
                let before = proc_disk_bytes();
                let found = now().unwrap().disk_bytes;
                if proc_disk_bytes() == before {
                    return assert_eq!(found, before);
                }
            }
        }

        #[test]
        fn disk_bytes_match_proc() {
            if !counts_disk_bytes() {
                return crate::base::skipped::skipped(
                    crate::base::skipped::Need::File("/proc/self/io"),
                    "this kernel does not count them",
                );
            }
            are_equal();
            let path =
                std::env::temp_dir().join(format!("pipewright-usage-{}", std::process::id()));
            let file = std::fs::File::create(&path).unwrap();
            file.write_all_at(&[7; 64 << 10], 0).unwrap();
            file.sync_all().unwrap();
            std::fs::remove_file(&path).unwrap();
            // Zero on a filesystem in memory; elsewhere the bytes written, and some more.
            are_equal();
        }
    }
}

// The answers of systems without such counters.
#[cfg(not(target_os = "linux"))]
mod imp {
    use super::ThreadUsage;

    pub(super) fn now() -> Option<ThreadUsage> {
        None
    }

    pub(super) fn kernel_workers() -> Option<usize> {
        None
    }

    pub(super) fn counts_disk_bytes() -> bool {
        false
    }
}
