//! The answers of systems without such counters.

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
