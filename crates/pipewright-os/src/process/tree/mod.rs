//! The descendants of a child: finding them, signalling them, and seeing their end.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "linux")]
pub(crate) use linux::is_child_of;
#[cfg(unix)]
mod walk;
#[cfg(target_os = "macos")]
use walk as imp;
#[cfg(target_os = "linux")]
pub(crate) use walk::add_children;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;
use std::time::Duration;

use crate::base::signal::Signal;
use crate::process::child::ChildHandle;
use crate::process::member::Member;

/// True if processes can be stopped, so that none starts another during a search for descendants. If they
/// cannot, a search after the kill finds the processes started between the first search and the kill.
pub const CAN_STOP: bool = cfg!(unix);

/// The processes found below one process, each found once.
#[derive(Debug, Default)]
pub struct Descendants {
    members: Vec<Member>,
    /// The error of a search that may have missed some.
    missed: Option<io::Error>,
}

impl Descendants {
    /// Adds every descendant of `root` and of the members that is not a member yet. Returns the number of
    /// added processes.
    ///
    /// On Unix a descendant whose parent has ended belongs to init or to a subreaper and is not found. Nor
    /// are the descendants of a root that is reaped, because its number may be another process's.
    ///
    /// # Platform
    /// Linux: `/proc/PID/task/TID/children`, each opened as a pidfd, and its parent checked again
    /// afterwards. Without pidfds or without that file nothing is found. macOS:
    /// `proc_listpids(PROC_PPID_ONLY)`, each registered with a kqueue, and its parent checked again
    /// afterwards. Windows: `CreateToolhelp32Snapshot`, each opened, and queried for its parent
    /// (`NtQueryInformationProcess`) and its start time. A process with an open handle keeps its number
    /// when it has ended, so its children are found then too; the children of a process that ended before
    /// it was found are not.
    pub fn collect(&mut self, root: &ChildHandle) -> usize {
        let before = self.members.len();
        if let Err(error) = imp::collect(root, &mut self.members) {
            self.missed.get_or_insert(error);
        }
        self.members.len() - before
    }

    /// Takes the error of a search since the last call that may have missed descendants, because there was no room to list or
    /// to open them.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.missed.take()
    }

    /// Returns the members.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Stops the root and its descendants, and searches until a search finds no new one: then no process is
    /// left that could start another. At most `rounds` times.
    ///
    /// # Platform
    /// Windows has no stop and only searches. So a search after the kill finds the processes started in
    /// between.
    pub fn stop_and_collect(&mut self, root: &ChildHandle, rounds: usize) {
        // Ignored here and below: gone, or another user's; the caller checks afterwards which are left.
        if root.signal(Signal::STOP).is_ok() {
            wait_briefly(|| imp::is_stopped_or_ended(root));
        }
        for _ in 0..rounds {
            let from = self.members.len();
            if self.collect(root) == 0 {
                return;
            }
            // One that may not be signalled does not stop, however long the wait.
            let stopped = self.members[from..].iter().filter(|it| it.signal(Signal::STOP).is_ok());
            for member in stopped.collect::<Vec<_>>() {
                wait_briefly(|| member.is_stopped_or_ended());
            }
        }
    }

    /// Returns a member that has not ended.
    #[must_use]
    pub fn any_alive(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.is_alive())
    }
}

/// Kills the processes below this one that have no child: a start that waits for a file is among them, and ends. Those above it
/// sleep until then, however this process ends.
///
/// # Platform
/// Unix: those that [`Descendants::collect`] finds. Errors are ignored: what cannot be found or killed is left. Windows: does nothing.
pub fn kill_last_descendants() {
    imp::kill_last();
}

/// Waits until a stop has taken effect, for a limited time. A process receives a stop when it next leaves
/// the kernel, and a fork in progress by then has created a child that no search saw. That takes
/// microseconds; a process that is stuck in the kernel is not waited for.
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
