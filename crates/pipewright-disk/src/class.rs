//! The class of an operation, derived from observations of its calls. Makes no system call.

use std::fmt;
use std::time::{Duration, Instant};

use pipewright_os::disk::file::{Action, Facts, Filesystem, SyncMode};
use pipewright_os::disk::iocp::CallStatus;

/// The class of an operation: the thread that waited for the disk, if any did.
///
/// Ordered from best to worst for the caller.
///
/// # Platform
/// Linux: an operation that io_uring gave to a worker may be done when the submitting call returns. It is then an
/// [`InlineCached`](Class::InlineCached). That is usual with one processor, and rare with several, unless they are
/// those of a virtual machine that gets less time than it has processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Class {
    /// Completed inside the call without sleeping: the data were in memory.
    InlineCached,
    /// Completed by the disk's interrupt while the caller went on.
    AsyncDevice,
    /// Completed while the caller went on, after a page was read into the cache. On Windows, a system thread may have
    /// waited for the page; the system doesn't report that.
    AsyncPageWait,
    /// Performed by a thread that waited for the disk, either the kernel's or the engine's.
    Worker,
    /// Windows: the call reported a pending operation that was already done when the call returned. The caller waited.
    PendingButDone,
    /// Performed inside the call, which slept: the caller waited.
    InlineBlocked,
}

impl Class {
    /// All classes, in order.
    pub const ALL: [Class; 6] = [
        Class::InlineCached,
        Class::AsyncDevice,
        Class::AsyncPageWait,
        Class::Worker,
        Class::PendingButDone,
        Class::InlineBlocked,
    ];

    /// Returns a stable, machine-readable name such as `inline_cached` or `worker`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::InlineCached => "inline_cached",
            Class::AsyncDevice => "async_device",
            Class::AsyncPageWait => "async_page_wait",
            Class::Worker => "worker",
            Class::PendingButDone => "pending_but_done",
            Class::InlineBlocked => "inline_blocked",
        }
    }

    /// Returns true if neither the caller nor another thread waited for the disk.
    #[must_use]
    pub fn is_asynchronous(self) -> bool {
        matches!(self, Class::AsyncDevice | Class::AsyncPageWait)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::InlineCached => "inline (cache)",
            Class::AsyncDevice => "async (device)",
            Class::AsyncPageWait => "async (page wait)",
            Class::Worker => "worker thread",
            Class::PendingButDone => "pending but done",
            Class::InlineBlocked => "inline (caller blocked)",
        })
    }
}

/// An observation that a backend made about one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Observation {
    /// No observation: it was not requested, or not possible.
    Nothing,
    /// The operation was done when the submitting call returned.
    Inline {
        /// True if the thread slept in that call.
        slept: bool,
        /// The duration of the call.
        took: Duration,
        /// The bytes that disks transferred for the thread in that call, if they were counted.
        device_bytes: Option<u64>,
    },
    /// The operation was not done, and the kernel continued it.
    Kernel {
        /// True if the thread slept in the submitting call.
        slept: bool,
        /// The duration of that call.
        took: Duration,
        /// The bytes that disks transferred for the thread in that call. `None` if this system doesn't count
        /// them.
        device_bytes: Option<u64>,
    },
    /// The operation was submitted to a kernel queue without threads: anything it cannot defer is done at
    /// once.
    Queue {
        /// True if the thread slept in the submitting call.
        slept: bool,
        /// The duration of that call.
        took: Duration,
    },
    /// Windows: the operation was submitted by an overlapped call.
    Call {
        /// The status returned by the submitting call.
        status: CallStatus,
        /// The duration of the call.
        took: Duration,
    },
    /// A thread of the engine performed the operation.
    Thread {
        /// The time at which the thread started, if it was requested.
        started_at: Option<Instant>,
    },
}

impl Observation {
    /// Returns the duration of the submitting call. `None` if it was not observed.
    pub(crate) fn took(self) -> Option<Duration> {
        match self {
            Observation::Inline { took, .. }
            | Observation::Kernel { took, .. }
            | Observation::Queue { took, .. }
            | Observation::Call { took, .. } => Some(took),
            Observation::Nothing | Observation::Thread { .. } => None,
        }
    }
}

/// Returns the class of a call. `None` if it cannot be determined.
///
/// The kernel (io_uring/rw.c) tries each operation without waiting. If that fails it passes the operation to one of its
/// threads, with two exceptions: a disk has accepted the request, and its bytes are accounted to the calling thread; or
/// a page of the cache is being read, and a filesystem that supports `RWF_NOWAIT` signals when it has arrived. A file
/// that can be polled (FUSE) has no such signal: the kernel starts to read the page in the submitting call, which may
/// sleep, and tries again when the caller fetches completions. After many tries it passes the read to a thread. All of
/// this can be observed without privileges, except which of the reads that was:
/// `has_workers` returns true if the kernel made threads for the caller, and such a read then has no class. If its call
/// slept, the caller has waited, whoever did so later.
///
/// A write that has to be on the disk before it returns (`sync`) is completed by a thread of the filesystem, which
/// flushes the disk's cache. With `O_DSYNC` a disk may do that itself with the write (FUA), which nothing reports.
pub(crate) fn class_of(
    observation: Observation,
    action: Action,
    (direct, sync): (bool, SyncMode),
    facts: &Facts,
    has_workers: impl FnOnce() -> bool,
) -> Option<Class> {
    let (slept, device_bytes) = match observation {
        Observation::Nothing => return None,
        Observation::Thread { .. } => return Some(Class::Worker),
        Observation::Call { status, .. } => return Some(class_of_overlapped(status, direct)),
        // The disk finished before the call returned.
        Observation::Inline { slept: false, device_bytes: Some(1..), .. } if direct => {
            return Some(Class::AsyncDevice);
        }
        Observation::Inline { slept: false, .. } => return Some(Class::InlineCached),
        Observation::Inline { slept: true, .. } | Observation::Queue { slept: true, .. } => {
            return Some(Class::InlineBlocked);
        }
        Observation::Queue { slept: false, .. } => return by_device(action, sync),
        Observation::Kernel { slept, device_bytes, .. } => (slept, device_bytes),
    };
    let later = match action {
        Action::SyncAll | Action::SyncData | Action::Allocate(_) => return Some(Class::Worker),
        Action::Write if !direct => return Some(Class::Worker),
        Action::Read if !direct => page_wait(facts, slept, has_workers)?,
        // The filesystem accepts direct reads and performs them through its cache.
        Action::Read if facts.encrypted == Some(true) => page_wait(facts, slept, has_workers)?,
        Action::Read | Action::Write => match device_bytes? {
            0 => Class::Worker,
            _ => by_device(action, sync)?,
        },
    };
    // Waking a kernel thread can make the caller sleep, but not for the disk.
    Some(if slept && later != Class::Worker { Class::InlineBlocked } else { later })
}

/// Returns the class of a direct operation that a disk has accepted.
fn by_device(action: Action, sync: SyncMode) -> Option<Class> {
    match (action, sync) {
        (Action::Write, SyncMode::All) => Some(Class::Worker),
        (Action::Write, SyncMode::Data) => None,
        _ => Some(Class::AsyncDevice),
    }
}

/// Returns the class of an overlapped call. Windows doesn't report whether the thread slept.
fn class_of_overlapped(status: CallStatus, direct: bool) -> Class {
    match status {
        // Direct I/O always needs the disk, so the caller waited for it.
        CallStatus::Done if direct => Class::InlineBlocked,
        CallStatus::Done => Class::InlineCached,
        CallStatus::PendingButDone => Class::PendingButDone,
        CallStatus::Pending if direct => Class::AsyncDevice,
        CallStatus::Pending => Class::AsyncPageWait,
    }
}

/// Returns the class of a read whose pages are not in memory.
fn page_wait(facts: &Facts, slept: bool, has_workers: impl FnOnce() -> bool) -> Option<Class> {
    match (facts.nowait, facts.pollable) {
        (_, Some(true)) if slept => Some(Class::InlineBlocked),
        // Without pages, as in sysfs: the kernel makes the text in the caller's time, once a poll has said that it may.
        (_, Some(true)) if matches!(facts.filesystem, Some(Filesystem::Other(_))) => {
            Some(Class::InlineBlocked)
        }
        (_, Some(true)) if has_workers() => None,
        (_, Some(true)) => Some(Class::AsyncPageWait),
        (Some(true), _) => Some(Class::AsyncPageWait),
        (Some(false), _) => Some(Class::Worker),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(nowait: bool, pollable: bool) -> Facts {
        let mut facts = Facts::default();
        (facts.nowait, facts.pollable) = (Some(nowait), Some(pollable));
        facts
    }

    fn inline(slept: bool) -> Observation {
        Observation::Inline { slept, took: Duration::ZERO, device_bytes: None }
    }

    fn quick(slept: bool, device_bytes: u64) -> Observation {
        Observation::Inline { slept, took: Duration::ZERO, device_bytes: Some(device_bytes) }
    }

    fn queue(slept: bool) -> Observation {
        Observation::Queue { slept, took: Duration::ZERO }
    }

    fn later(slept: bool, device_bytes: u64) -> Observation {
        Observation::Kernel { slept, took: Duration::ZERO, device_bytes: Some(device_bytes) }
    }

    #[test]
    fn every_kernel_path_has_its_class() {
        let (disk, layered, fuse) = (facts(true, false), facts(false, false), facts(false, true));
        for (observation, action, direct, facts, class) in [
            (inline(false), Action::Read, false, disk, Class::InlineCached),
            (inline(true), Action::Read, true, fuse, Class::InlineBlocked),
            // A disk that is faster than the call; a hole, which needs no disk; and data in memory.
            (quick(false, 4096), Action::Read, true, disk, Class::AsyncDevice),
            (quick(false, 4096), Action::Write, true, disk, Class::AsyncDevice),
            (quick(true, 4096), Action::Read, true, disk, Class::InlineBlocked),
            (quick(false, 0), Action::Read, true, disk, Class::InlineCached),
            (quick(false, 4096), Action::Read, false, disk, Class::InlineCached),
            (later(false, 4096), Action::Read, false, disk, Class::AsyncPageWait),
            // Another request is already reading the page.
            (later(false, 0), Action::Read, false, disk, Class::AsyncPageWait),
            (later(false, 0), Action::Read, false, layered, Class::Worker),
            (later(true, 0), Action::Read, false, fuse, Class::InlineBlocked),
            (later(false, 0), Action::Read, false, fuse, Class::AsyncPageWait),
            (later(false, 4096), Action::Read, true, disk, Class::AsyncDevice),
            (later(true, 4096), Action::Read, true, disk, Class::InlineBlocked),
            (later(false, 0), Action::Read, true, layered, Class::Worker),
            (later(false, 0), Action::Write, false, disk, Class::Worker),
            (later(true, 0), Action::Write, true, disk, Class::Worker),
            (later(false, 512), Action::Write, true, disk, Class::AsyncDevice),
            (later(false, 0), Action::SyncAll, false, disk, Class::Worker),
            (later(false, 4096), Action::Allocate(1), true, disk, Class::Worker),
            (queue(false), Action::Read, true, layered, Class::AsyncDevice),
            (queue(true), Action::Write, true, disk, Class::InlineBlocked),
            (Observation::Thread { started_at: None }, Action::Read, true, disk, Class::Worker),
        ] {
            assert_eq!(
                class_of(observation, action, (direct, SyncMode::None), &facts, || false),
                Some(class),
                "{observation:?} {action:?}"
            );
        }
    }

    #[test]
    fn overlapped_status_decides_the_class() {
        for (status, direct, class) in [
            (CallStatus::Done, false, Class::InlineCached),
            (CallStatus::Done, true, Class::InlineBlocked),
            (CallStatus::PendingButDone, false, Class::PendingButDone),
            (CallStatus::PendingButDone, true, Class::PendingButDone),
            (CallStatus::Pending, false, Class::AsyncPageWait),
            (CallStatus::Pending, true, Class::AsyncDevice),
        ] {
            let observation = Observation::Call { status, took: Duration::ZERO };
            let options = (direct, SyncMode::None);
            let found = class_of(observation, Action::Write, options, &Facts::default(), || false);
            assert_eq!(found, Some(class), "{status:?} {direct}");
        }
    }

    #[test]
    fn a_write_that_waits_for_the_disk_is_completed_by_a_thread() {
        let disk = facts(true, false);
        for (action, sync, class) in [
            (Action::Write, SyncMode::None, Some(Class::AsyncDevice)),
            (Action::Write, SyncMode::All, Some(Class::Worker)),
            // The disk may do it alone.
            (Action::Write, SyncMode::Data, None),
            (Action::Read, SyncMode::All, Some(Class::AsyncDevice)),
        ] {
            for observation in [later(false, 4096), queue(false)] {
                let found = class_of(observation, action, (true, sync), &disk, || false);
                assert_eq!(found, class, "{observation:?} {action:?} {sync:?}");
            }
        }
    }

    #[test]
    fn a_polled_file_without_pages_is_made_in_the_callers_time() {
        let mut sysfs = facts(false, true);
        sysfs.filesystem = Some(Filesystem::Other(0x6265_6572));
        assert_eq!(page_wait(&sysfs, false, || false), Some(Class::InlineBlocked));
        sysfs.filesystem = Some(Filesystem::Fuse);
        assert_eq!(page_wait(&sysfs, false, || false), Some(Class::AsyncPageWait));
    }

    #[test]
    fn class_is_none_without_an_observation() {
        const NO: (bool, SyncMode) = (false, SyncMode::None);
        let unknown = Facts::default();
        assert_eq!(class_of(Observation::Nothing, Action::Read, NO, &unknown, || false), None);
        assert_eq!(class_of(later(false, 0), Action::Read, NO, &unknown, || false), None);
        let uncounted =
            Observation::Kernel { slept: false, took: Duration::ZERO, device_bytes: None };
        assert_eq!(
            class_of(uncounted, Action::Read, (true, SyncMode::None), &facts(true, false), || {
                false
            }),
            None
        );
        // Through FUSE, a thread may have performed this read or another one.
        let fuse = facts(false, true);
        assert_eq!(class_of(later(false, 0), Action::Read, NO, &fuse, || true), None);
        let slept = class_of(later(true, 0), Action::Read, NO, &fuse, || true);
        assert_eq!(
            slept,
            Some(Class::InlineBlocked),
            "the caller has waited, and maybe a thread, too"
        );
    }
}
