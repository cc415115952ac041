//! Whether an operation was asynchronous, from what was seen of it: no system call in here.

use std::fmt;
use std::time::{Duration, Instant};

use pipewright_os::disk::file::{Action, Facts};
use pipewright_os::disk::iocp::CallStatus;

/// Whether an operation was asynchronous: who waited for the disk.
///
/// In order: the later, the worse for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Class {
    /// Done inside the call, and the call never slept: the data were in memory.
    InlineCached,
    /// The disk worked while the caller went on, and its interrupt completed the operation.
    AsyncDevice,
    /// As `AsyncDevice`, for a page of the cache that had to be read. Windows: or a thread of the system waited
    /// for it, which nothing tells.
    AsyncPageWait,
    /// A thread waited for the disk: one of the kernel's, or one of the engine's.
    Worker,
    /// Windows: the system said "pending", and was done when the call returned. The caller waited.
    PendingButDone,
    /// The call itself slept: the caller waited.
    InlineBlocked,
}

impl Class {
    /// All of them, in order.
    pub const ALL: [Class; 6] = [
        Class::InlineCached,
        Class::AsyncDevice,
        Class::AsyncPageWait,
        Class::Worker,
        Class::PendingButDone,
        Class::InlineBlocked,
    ];

    /// A name for machines, which stays as it is: `inline_cached`, `worker`.
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

    /// Whether nobody waited who could have done something else.
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

/// What a backend has seen of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Observation {
    /// Nothing: nobody asked, or nothing could be seen.
    Nothing,
    /// It was done when the call that asked for it returned.
    Inline {
        /// Whether the thread slept in that call.
        slept: bool,
        /// How long the call took.
        took: Duration,
        /// What the thread itself had disks do in that call, where that was watched.
        device_bytes: Option<u64>,
    },
    /// It was not, and the kernel went on with it.
    Kernel {
        /// Whether the thread slept in the call that handed it over.
        slept: bool,
        /// How long that call took.
        took: Duration,
        /// What the thread itself had disks do in that call. `None`: that is not counted here.
        device_bytes: Option<u64>,
    },
    /// It was handed to a kernel that has no threads for it: what it cannot do later it does at once.
    Queue {
        /// Whether the thread slept in the call that handed it over.
        slept: bool,
        /// How long that call took.
        took: Duration,
    },
    /// Windows: what the call said that handed it over.
    Call {
        /// That.
        status: CallStatus,
        /// How long the call took.
        took: Duration,
    },
    /// A thread of the engine did it.
    Thread {
        /// When that began, where somebody asked.
        started_at: Option<Instant>,
    },
}

impl Observation {
    /// How long the call kept the caller that handed it over. `None`: it was not watched.
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

/// The class of a call. `None`: it cannot be known.
///
/// How the kernel (io_uring/rw.c) decides, and what can be seen of that without any right:
/// it tries each operation without waiting. What cannot be done so it hands to a thread of its own, with
/// two exceptions: a disk that has taken the request, in which case the calling thread is accounted its
/// bytes, and a page of the cache that is being read, of which a filesystem that knows `RWF_NOWAIT` tells
/// when it is there. A file that can be polled (FUSE) is taken for one that never waits, and so the caller
/// waits, in this call or in the one that fetches completions.
pub(crate) fn class_of(
    observation: Observation,
    action: Action,
    direct: bool,
    facts: &Facts,
) -> Option<Class> {
    let (slept, device_bytes) = match observation {
        Observation::Nothing => return None,
        Observation::Thread { .. } => return Some(Class::Worker),
        Observation::Call { status, .. } => return Some(class_of_overlapped(status, direct)),
        // The disk was done before the call was.
        Observation::Inline { slept: false, device_bytes: Some(1..), .. } if direct => {
            return Some(Class::AsyncDevice);
        }
        Observation::Inline { slept: false, .. } => return Some(Class::InlineCached),
        Observation::Inline { slept: true, .. } | Observation::Queue { slept: true, .. } => {
            return Some(Class::InlineBlocked);
        }
        Observation::Queue { slept: false, .. } => return Some(Class::AsyncDevice),
        Observation::Kernel { slept, device_bytes, .. } => (slept, device_bytes),
    };
    let later = match action {
        Action::SyncAll | Action::SyncData | Action::Allocate(_) => return Some(Class::Worker),
        Action::Write if !direct => return Some(Class::Worker),
        Action::Read if !direct => page_wait(facts)?,
        // The filesystem takes direct reads and does them in its cache.
        Action::Read if facts.encrypted == Some(true) => page_wait(facts)?,
        Action::Read | Action::Write => match device_bytes? {
            0 => Class::Worker,
            _ => Class::AsyncDevice,
        },
    };
    // A thread of the kernel is made ready by the caller, which may sleep for that: not for the disk.
    Some(if slept && later != Class::Worker { Class::InlineBlocked } else { later })
}

/// What Windows tells of a call. It does not tell whether the thread slept.
fn class_of_overlapped(status: CallStatus, direct: bool) -> Class {
    match status {
        // Past the cache nothing can be done without the disk: the caller waited for it.
        CallStatus::Done if direct => Class::InlineBlocked,
        CallStatus::Done => Class::InlineCached,
        CallStatus::PendingButDone => Class::PendingButDone,
        CallStatus::Pending if direct => Class::AsyncDevice,
        CallStatus::Pending => Class::AsyncPageWait,
    }
}

/// What a read of pages that are not there becomes.
fn page_wait(facts: &Facts) -> Option<Class> {
    match (facts.nowait, facts.pollable) {
        (_, Some(true)) => Some(Class::InlineBlocked),
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
    fn each_case_of_the_kernel_has_its_class() {
        let (disk, layered, fuse) = (facts(true, false), facts(false, false), facts(false, true));
        for (observation, action, direct, facts, class) in [
            (inline(false), Action::Read, false, disk, Class::InlineCached),
            (inline(true), Action::Read, true, fuse, Class::InlineBlocked),
            // A disk that is faster than the call; a hole, of which it knows nothing; and nothing to fetch.
            (quick(false, 4096), Action::Read, true, disk, Class::AsyncDevice),
            (quick(false, 4096), Action::Write, true, disk, Class::AsyncDevice),
            (quick(true, 4096), Action::Read, true, disk, Class::InlineBlocked),
            (quick(false, 0), Action::Read, true, disk, Class::InlineCached),
            (quick(false, 4096), Action::Read, false, disk, Class::InlineCached),
            (later(false, 4096), Action::Read, false, disk, Class::AsyncPageWait),
            // Another request reads the page already.
            (later(false, 0), Action::Read, false, disk, Class::AsyncPageWait),
            (later(false, 0), Action::Read, false, layered, Class::Worker),
            (later(false, 4096), Action::Read, false, fuse, Class::InlineBlocked),
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
                class_of(observation, action, direct, &facts),
                Some(class),
                "{observation:?} {action:?}"
            );
        }
    }

    #[test]
    fn what_windows_says_of_a_call_is_its_class() {
        for (status, direct, class) in [
            (CallStatus::Done, false, Class::InlineCached),
            (CallStatus::Done, true, Class::InlineBlocked),
            (CallStatus::PendingButDone, false, Class::PendingButDone),
            (CallStatus::PendingButDone, true, Class::PendingButDone),
            (CallStatus::Pending, false, Class::AsyncPageWait),
            (CallStatus::Pending, true, Class::AsyncDevice),
        ] {
            let observation = Observation::Call { status, took: Duration::ZERO };
            let found = class_of(observation, Action::Write, direct, &Facts::default());
            assert_eq!(found, Some(class), "{status:?} {direct}");
        }
    }

    #[test]
    fn what_was_not_seen_is_not_guessed() {
        let unknown = Facts::default();
        assert_eq!(class_of(Observation::Nothing, Action::Read, false, &unknown), None);
        assert_eq!(class_of(later(false, 0), Action::Read, false, &unknown), None);
        let uncounted =
            Observation::Kernel { slept: false, took: Duration::ZERO, device_bytes: None };
        assert_eq!(class_of(uncounted, Action::Read, true, &facts(true, false)), None);
    }
}
