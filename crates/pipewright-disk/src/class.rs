//! Whether an operation was asynchronous, from what was seen of it: no system call in here.

use std::time::{Duration, Instant};

use pipewright_os::disk::file::{Action, Facts};
use pipewright_os::disk::iocp::Told;

use crate::operation::Class;

/// What a backend has seen of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
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
        told: Told,
        /// How long the call took.
        took: Duration,
    },
    /// A thread of the engine did it.
    Thread {
        /// When that began, where somebody asked.
        started_at: Option<Instant>,
    },
}

impl Seen {
    /// How long the call kept the caller that handed it over. `None`: it was not watched.
    pub(crate) fn took(self) -> Option<Duration> {
        match self {
            Seen::Inline { took, .. }
            | Seen::Kernel { took, .. }
            | Seen::Queue { took, .. }
            | Seen::Call { took, .. } => Some(took),
            Seen::Nothing | Seen::Thread { .. } => None,
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
pub(crate) fn class_of(seen: Seen, action: Action, direct: bool, facts: &Facts) -> Option<Class> {
    let (slept, device_bytes) = match seen {
        Seen::Nothing => return None,
        Seen::Thread { .. } => return Some(Class::Worker),
        Seen::Call { told, .. } => return Some(called(told, direct)),
        // The disk was done before the call was.
        Seen::Inline { slept: false, device_bytes: Some(1..), .. } if direct => {
            return Some(Class::AsyncDevice);
        }
        Seen::Inline { slept: false, .. } => return Some(Class::InlineCached),
        Seen::Inline { slept: true, .. } | Seen::Queue { slept: true, .. } => {
            return Some(Class::InlineBlocked);
        }
        Seen::Queue { slept: false, .. } => return Some(Class::AsyncDevice),
        Seen::Kernel { slept, device_bytes, .. } => (slept, device_bytes),
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
fn called(told: Told, direct: bool) -> Class {
    match told {
        // Past the cache nothing can be done without the disk: the caller waited for it.
        Told::Done if direct => Class::InlineBlocked,
        Told::Done => Class::InlineCached,
        Told::PendingButDone => Class::PendingButDone,
        Told::Pending if direct => Class::AsyncDevice,
        Told::Pending => Class::AsyncPageWait,
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

    fn inline(slept: bool) -> Seen {
        Seen::Inline { slept, took: Duration::ZERO, device_bytes: None }
    }

    fn quick(slept: bool, device_bytes: u64) -> Seen {
        Seen::Inline { slept, took: Duration::ZERO, device_bytes: Some(device_bytes) }
    }

    fn queue(slept: bool) -> Seen {
        Seen::Queue { slept, took: Duration::ZERO }
    }

    fn later(slept: bool, device_bytes: u64) -> Seen {
        Seen::Kernel { slept, took: Duration::ZERO, device_bytes: Some(device_bytes) }
    }

    #[test]
    fn each_case_of_the_kernel_has_its_class() {
        let (disk, layered, fuse) = (facts(true, false), facts(false, false), facts(false, true));
        for (seen, action, direct, facts, class) in [
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
            (Seen::Thread { started_at: None }, Action::Read, true, disk, Class::Worker),
        ] {
            assert_eq!(class_of(seen, action, direct, &facts), Some(class), "{seen:?} {action:?}");
        }
    }

    #[test]
    fn what_windows_says_of_a_call_is_its_class() {
        for (told, direct, class) in [
            (Told::Done, false, Class::InlineCached),
            (Told::Done, true, Class::InlineBlocked),
            (Told::PendingButDone, false, Class::PendingButDone),
            (Told::PendingButDone, true, Class::PendingButDone),
            (Told::Pending, false, Class::AsyncPageWait),
            (Told::Pending, true, Class::AsyncDevice),
        ] {
            let seen = Seen::Call { told, took: Duration::ZERO };
            let found = class_of(seen, Action::Write, direct, &Facts::default());
            assert_eq!(found, Some(class), "{told:?} {direct}");
        }
    }

    #[test]
    fn what_was_not_seen_is_not_guessed() {
        let unknown = Facts::default();
        assert_eq!(class_of(Seen::Nothing, Action::Read, false, &unknown), None);
        assert_eq!(class_of(later(false, 0), Action::Read, false, &unknown), None);
        let uncounted = Seen::Kernel { slept: false, took: Duration::ZERO, device_bytes: None };
        assert_eq!(class_of(uncounted, Action::Read, true, &facts(true, false)), None);
    }
}
