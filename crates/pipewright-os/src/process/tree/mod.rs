//! The descendants of a child: find them, signal them, know when they are gone.

#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
pub(crate) mod libproc;
#[cfg(target_os = "macos")]
pub(crate) mod macos;
#[cfg(target_os = "linux")]
pub(crate) mod proc;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(unix)]
mod walk;
#[cfg(windows)]
pub(crate) mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::base::event::{Event, Source};
use crate::base::signal::Signal;
use crate::base::wait::Slot;
use crate::process::child::ChildHandle;

/// Whether processes can be stopped, so that nobody starts another while descendants are searched for.
/// Where they cannot, whoever was started between a search and a kill is found by a search after it.
pub const CAN_STOP: bool = cfg!(unix);

/// A process that is not our child, held so that its number cannot pass to another.
#[derive(Debug, Clone)]
pub struct Member(pub(crate) Arc<imp::Member>);

/// The processes found below one process, each found once.
#[derive(Debug, Default)]
pub struct Descendants {
    members: Vec<Member>,
}

impl Event for Member {
    fn source(&self) -> Source<'_> {
        imp::source(self)
    }

    fn has_happened(&self) -> bool {
        !self.is_alive()
    }
}

impl Member {
    /// Returns a slot that waits for the end of the process and keeps its number from passing to another one meanwhile.
    #[must_use]
    pub fn to_slot(&self) -> Slot<'static> {
        Slot::Owned(Arc::new(self.clone()))
    }

    /// The process id, for people to read.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Sends a signal. `false`: the process is gone, and nobody was signalled.
    ///
    /// # Platform
    /// Linux: `pidfd_send_signal`. macOS: `kill`, if `NOTE_EXIT` has not come and the time of the
    /// start is still the one it was. No call makes these one: another process is signalled if this
    /// one ends, is reaped and its number comes round again between the two. Windows:
    /// `TerminateProcess` for `KILL`.
    ///
    /// # Errors
    /// `PermissionDenied`: it belongs to another user. `Unsupported` (Windows): every signal but
    /// `KILL`.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        self.0.signal(signal)
    }

    /// The process group it is in; `None` where it is gone, and on Windows, which does not tell.
    #[must_use]
    pub fn group(&self) -> Option<u32> {
        self.0.group()
    }

    /// Whether it has not ended yet.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.is_alive()
    }
}

impl Descendants {
    /// Adds every descendant of `root` and of the members that is not a member yet. Returns how
    /// many were added.
    ///
    /// On Unix a descendant whose parent has ended belongs to init or to a subreaper and is not
    /// found; nor is anybody below a root that is reaped, because its number may be another's.
    ///
    /// # Platform
    /// Linux: `/proc/PID/task/TID/children`, each opened as a pidfd, and its parent checked again
    /// afterwards. Without pidfds or without that file nothing is found. macOS:
    /// `proc_listpids(PROC_PPID_ONLY)`, each registered with a kqueue, and its parent checked again
    /// afterwards. Windows: `CreateToolhelp32Snapshot`, each opened, and asked itself whose child
    /// it is (`NtQueryInformationProcess`) and when it began. A process that is held keeps its
    /// number when it has ended, so whoever it has started is found then too; those below somebody
    /// who had ended before he was found are not.
    pub fn collect(&mut self, root: &ChildHandle) -> usize {
        let before = self.members.len();
        imp::collect(root, &mut self.members);
        self.members.len() - before
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Stops the root and everyone below it, and searches until a search finds nobody new: then
    /// nobody is left who could start another. At most `rounds` times.
    ///
    /// # Platform
    /// Windows has no stop: searches alone. So a search after the kill finds who was started
    /// in between.
    pub fn stop_and_collect(&mut self, root: &ChildHandle, rounds: usize) {
        // Ignored here and below: gone, or another user's; the caller asks afterwards who is left.
        let _ = root.signal(Signal::STOP);
        wait_briefly(|| imp::rests(root));
        for _ in 0..rounds {
            let from = self.members.len();
            if self.collect(root) == 0 {
                return;
            }
            for member in &self.members[from..] {
                let _ = member.signal(Signal::STOP);
            }
            for member in &self.members[from..] {
                wait_briefly(|| member.0.rests());
            }
        }
    }

    /// A member that has not ended.
    #[must_use]
    pub fn any_alive(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.is_alive())
    }
}

/// A stop is delivered when its receiver next leaves the kernel, and a fork that is under way by
/// then has made a child that no search saw. It takes microseconds; a process that is stuck in the
/// kernel is not waited for.
fn wait_briefly(fact: impl Fn() -> bool) {
    const PAUSE: Duration = Duration::from_micros(50);
    const PAUSES: u32 = 100;
    for _ in 0..PAUSES {
        if fact() {
            return;
        }
        std::thread::park_timeout(PAUSE);
    }
}
