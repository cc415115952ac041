//! The end of a child: waiting for it, being woken by it, and signalling the child safely until then; and the
//! containment of its tree.

#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
pub(crate) mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(windows)]
pub(crate) mod windows;
#[cfg(windows)]
use windows as imp;

use std::{fmt, io};

use crate::base::signal::Signal;
use crate::base::wake::{EventSource, WaitEvent};
use crate::process::limits::TreeResources;
use crate::process::member::Member;
use crate::process::status::Ended;
use crate::process::usage::Usage;

/// A child of this process, and the handle on its end.
///
/// Every method takes `&self`: one thread can wait while another kills. A signal never reaches a later
/// process with the same number, because it goes through a handle on the process (a pidfd, a process
/// HANDLE). If there is none (macOS, and Linux if pidfds are refused), it is sent under the lock that the
/// reap takes. That is safe as long as no other code of this program reaps the child (`waitpid(-1)`, an
/// ignored SIGCHLD): macOS first compares the start time of the process, which leaves a short race;
/// Linux without pidfds has nothing to compare.
///
/// # Drop
/// Closes the handle and nothing else: a child that has not been reaped becomes a zombie when it ends
/// (Unix). The crate above passes such children to its reaper.
#[derive(Debug)]
pub struct ChildHandle(pub(crate) imp::ChildHandle);

impl Default for ChildHandle {
    /// Creates a handle without a child, which counts as ended and reaped.
    fn default() -> ChildHandle {
        ChildHandle(imp::ChildHandle::already_ended())
    }
}

impl WaitEvent for ChildHandle {
    fn source(&self) -> EventSource<'_> {
        imp::source(&self.0)
    }

    /// Returns true if the child has ended. Does not reap it.
    fn has_happened(&self) -> bool {
        self.0.has_ended()
    }
}

impl ChildHandle {
    /// Returns the process id, for people to read and for logs. It identifies nothing once the child is
    /// reaped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Blocks until the child has ended, reaps it, and returns its exit status. Later calls return the
    /// same.
    ///
    /// # Platform
    /// Linux: `waitid(P_PIDFD)`. macOS: a kqueue with `NOTE_EXIT`, then `wait4`. Windows:
    /// `WaitForSingleObject`, then `GetExitCodeProcess`, `GetProcessTimes` and `GetProcessMemoryInfo`;
    /// nothing is reaped, and no other code can take the status.
    ///
    /// # Errors
    /// `ECHILD` if another part of the program reaped the child (or SIGCHLD is ignored) and the kernel does
    /// not keep the status; Linux 6.15 and later keep it (`PIDFD_GET_INFO`), and macOS keeps it for a
    /// kqueue that existed before (`NOTE_EXITSTATUS`).
    pub fn wait(&self) -> io::Result<Ended> {
        self.0.wait()
    }

    /// Waits like [`wait`](Self::wait), if no other thread can be waiting or signalling, with one system
    /// call less.
    ///
    /// # Errors
    /// The same as for [`wait`](Self::wait).
    pub fn wait_exclusive(&mut self) -> io::Result<Ended> {
        self.0.wait_exclusive()
    }

    /// Returns the exit status like [`wait`](Self::wait), or `None` at once if the child is still running.
    ///
    /// # Errors
    /// The same as for [`wait`](Self::wait).
    pub fn try_wait(&self) -> io::Result<Option<Ended>> {
        self.0.try_wait()
    }

    /// Returns the same usage, with the peak memory added if a further check proves that it is the child's.
    ///
    /// # Platform
    /// Linux: reads `VmHWM` of this process, because the figure of `getrusage` may itself be inherited.
    /// macOS: nothing is left to check. Windows: nothing; the figure is the child's from the start.
    #[must_use]
    pub fn refine_peak_memory(&self, usage: Usage) -> Usage {
        self.0.refine_peak_memory(usage)
    }

    /// Returns the memory that the child uses now, in bytes. `None` if it has ended, or if the system does
    /// not report it.
    ///
    /// # Platform
    /// Linux: `VmRSS` of `/proc/PID/status`. macOS: `proc_pidinfo(PROC_PIDTASKINFO)`. Windows: the working set
    /// (`GetProcessMemoryInfo`).
    #[must_use]
    pub fn rss_bytes(&self) -> Option<u64> {
        self.0.rss_bytes()
    }

    /// Sends a signal. Returns false if the child has ended and been reaped; then nothing was signalled. (A
    /// child that has ended and not been reaped accepts the signal without effect.)
    ///
    /// # Platform
    /// Linux: `pidfd_send_signal`. macOS: `kill`, while the child is unreaped and its number therefore
    /// taken. Windows: `TerminateProcess` with exit code 1 for `KILL`; for `TERM`, `INT`, `QUIT` and `HUP`
    /// a Ctrl-Break (`GenerateConsoleCtrlEvent`), if the child leads a process group of its own and shares
    /// this process's console.
    ///
    /// # Errors
    /// `EPERM`: the child runs as another user now. `Unsupported` (Windows): any other signal, or one of
    /// those four to a child that cannot receive it. Nothing was signalled, and only `KILL` is left.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        self.0.signal(signal)
    }

    /// Sends a signal to the process group that the child leads (a child started with
    /// [`Group::Own`](crate::process::start::Group::Own)). Returns false if the group has no process left.
    ///
    /// # Platform
    /// Linux 6.9 and later: `pidfd_send_signal(PIDFD_SIGNAL_PROCESS_GROUP)`, also after the child itself is
    /// reaped. Earlier Linux: `kill(-pid)`, only while the child is unreaped and its number therefore still
    /// taken; false afterwards. macOS: always like earlier Linux.
    ///
    /// Windows: a Ctrl-Break goes to the whole group, as long as the child itself has not ended; afterwards
    /// the call returns false, even if the group has other processes. `KILL` goes to the child alone.
    ///
    /// # Errors
    /// `EPERM`: this process may not signal any member.
    pub fn signal_group(&self, signal: Signal) -> io::Result<bool> {
        self.0.signal_group(signal)
    }

    /// Returns true if the child has been stopped (Ctrl-Z) since the last call, and still is.
    ///
    /// # Platform
    /// Linux: `waitid(WSTOPPED)`, or a report of the supervisor. macOS: `wait4(WUNTRACED)`, then
    /// `proc_pidinfo`. Windows: always false.
    #[must_use]
    pub fn take_stop(&self) -> bool {
        self.0.take_stop()
    }

    /// Returns true if the child is stopped, or traced, at this moment.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    /// Returns the way in which the child is contained.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.0.containment
    }

    /// Returns the contained tree with the child at its root, if there is one.
    #[must_use]
    pub fn tree(&self) -> Option<&dyn ContainedTree> {
        self.0.tree.as_deref()
    }

    /// Releases the tree, as [`ContainedTree`]'s drop does. Returns a process of this library that has to be reaped,
    /// if there is one.
    #[must_use]
    pub fn release_tree(&mut self) -> Option<ChildHandle> {
        self.0.tree.take().and_then(ContainedTree::release)
    }

    /// Returns true if the child is in the process group that has its number. False once it is reaped.
    #[must_use]
    pub fn is_group_leader(&self) -> bool {
        self.0.is_group_leader()
    }

    /// Returns true if the child is in that process group. False once it is reaped, and on Windows, which does not
    /// report it.
    #[must_use]
    pub fn is_in_group(&self, group: u32) -> bool {
        self.0.is_in_group(group)
    }

    /// Returns true if the child is unreaped, so that no other process can have its number.
    #[cfg(unix)]
    pub(crate) fn owns_pid(&self) -> bool {
        self.0.owns_pid()
    }

    /// Returns true if the process group that the child leads can be signalled after the child is reaped.
    ///
    /// # Platform
    /// Linux: true from 6.9 on. macOS: false. Windows: true, because nothing is reaped.
    #[must_use]
    pub fn group_survives_reap(&self) -> bool {
        self.0.group_survives_reap()
    }

    /// Returns true if the process group that the child led has a member that has not ended. False if that
    /// is unknown.
    ///
    /// # Platform
    /// Linux: signal 0 through the pidfd; if that finds a process, `/proc` shows if there is more than
    /// zombies. macOS: `proc_listpids(PROC_PGRP_ONLY)`, until the child is reaped. Windows: unknown.
    #[must_use]
    pub fn group_is_alive(&self) -> bool {
        self.0.group_is_alive()
    }

    /// Kills what is left of the process group that holds the tree of this child, and the child itself if it has not
    /// ended. Waits a moment for the ends, and returns the number of the others. Later calls return the same. 0 for a
    /// tree that is held in another way.
    ///
    /// # Platform
    /// macOS, where only groups hold trees: those that were members when the child was reaped, or are now. Elsewhere 0.
    #[must_use]
    pub fn end_group(&self) -> u32 {
        self.0.end_group()
    }
}

/// The way in which a child is contained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Containment {
    /// Not contained: a stop reaches the child and the descendants that can be found at that moment.
    #[default]
    None,
    /// A process group of its own. A process that leaves the group is out of reach. On Windows a group can
    /// be asked to end (Ctrl-Break) but not killed: a kill reaches the descendants that can be found.
    Group,
    /// A supervisor process, which adopts every descendant that loses its parent. No descendant escapes;
    /// one that runs as a user that this process may not signal is not killed.
    Supervisor,
    /// A control group of its own (Linux, cgroup v2). No process escapes unless it may move to another
    /// cgroup, and all are killed at once, whatever users they run as.
    Cgroup,
    /// A job object (Windows). No process escapes unless the job lets it: see
    /// [`WindowsOptions::allow_breakaway`](crate::process::start::WindowsOptions::allow_breakaway).
    Job,
}

/// A contained tree, beside the handle of the child at its root.
///
/// # Drop
/// Releases the tree: a supervisor or a job kills it, but the processes of a cgroup continue to
/// run. Call [`end`](Self::end) first to end them.
pub trait ContainedTree: fmt::Debug + Send + Sync {
    /// Returns the way in which the tree is contained.
    fn containment(&self) -> Containment;

    /// Kills every process in the tree. Returns at once; [`is_alive`](Self::is_alive) shows when they have
    /// ended.
    ///
    /// # Platform
    /// Linux: `cgroup.kill` (5.14), before that one by one; or the supervisor kills. Windows:
    /// `TerminateJobObject`.
    fn kill(&self);

    /// Returns true if a process in the tree has not ended.
    ///
    /// # Platform
    /// Linux: `cgroup.events`, or the supervisor. Windows: `QueryInformationJobObject`; messages of a job
    /// are not guaranteed to arrive.
    fn is_alive(&self) -> bool;

    /// Returns the process to wait for, which ends when no other process of the tree is left. If it is
    /// `None`, the caller has to poll [`is_alive`](Self::is_alive).
    fn last(&self) -> Option<&Member>;

    /// Kills the processes that are left, waits a moment for their end, and returns their number, not
    /// counting the child at the root. Later calls return the same.
    ///
    /// The wait for a process that cannot be killed (stuck in the kernel) takes at most 1 s.
    fn end(&self) -> u32;

    /// Adds the processes of the tree, without the child at its root, that are not members yet.
    ///
    /// # Errors
    /// There is no room to list or to open them all.
    fn collect(&self, members: &mut Vec<Member>) -> io::Result<()>;

    /// Returns the resources that the tree used, and the limits in force; `None` if it was started without limits.
    /// Final after [`end`](Self::end).
    fn resources(&self) -> Option<TreeResources> {
        None
    }

    /// Releases the tree, and returns a process of this library that has to be reaped, if there is one.
    fn release(self: Box<Self>) -> Option<ChildHandle>;
}

impl Containment {
    /// Returns the word for it in reports and in Python. A word never changes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Containment::None => "none",
            Containment::Group => "group",
            Containment::Supervisor => "supervisor",
            Containment::Cgroup => "cgroup",
            Containment::Job => "job",
        }
    }
}

impl fmt::Display for Containment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
