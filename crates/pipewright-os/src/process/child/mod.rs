//! The end of a child: wait for it, be woken by it, signal the child safely until then.

mod containment;
#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
pub(crate) mod guard;
#[cfg(target_os = "macos")]
pub(crate) mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(windows)]
pub(crate) mod windows;
#[cfg(windows)]
use windows as imp;

use std::io;

use crate::base::event::{Event, Source};
use crate::base::signal::Signal;
use crate::process::status::Ended;
use crate::process::usage::Usage;
pub use containment::{Containment, Tree};

/// A child of this process and the handle on its end.
///
/// Every method takes `&self`: one thread can wait while another kills. A signal never reaches
/// another process that was given the same number later, because it goes through a handle on the
/// process (a pidfd, a process HANDLE), or, where there is none (macOS, and Linux where pidfds are refused), is
/// sent under the lock that the reap takes. There that holds as long as no other code of this program
/// reaps the child (`waitpid(-1)`, an ignored SIGCHLD): macOS looks first at when the process was started,
/// which leaves a moment; Linux without pidfds has nothing to look at.
///
/// # Drop
/// Gives up the handle and nothing else: a child that has not been reaped becomes a zombie when it
/// ends (Unix). The crate above hands such children to its reaper.
#[derive(Debug)]
pub struct ChildHandle(pub(crate) imp::ChildHandle);

impl Default for ChildHandle {
    /// The end of no child: one that has ended and is reaped.
    fn default() -> ChildHandle {
        ChildHandle(imp::ChildHandle::of_nobody())
    }
}

impl Event for ChildHandle {
    fn source(&self) -> Source<'_> {
        imp::source(&self.0)
    }

    /// Returns true if the child has ended. It is not reaped.
    fn has_happened(&self) -> bool {
        self.0.has_ended()
    }
}

impl ChildHandle {
    /// The process id, for people to read and for logs. It says nothing once the child is reaped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Blocks until the child has ended, reaps it, and tells how it ended; again and again if asked.
    ///
    /// # Platform
    /// Linux: `waitid(P_PIDFD)`. macOS: a kqueue with `NOTE_EXIT`, then `wait4`. Windows:
    /// `WaitForSingleObject`, then `GetExitCodeProcess`, `GetProcessTimes` and
    /// `GetProcessMemoryInfo`; nothing is reaped, and nobody else can take the status.
    ///
    /// # Errors
    /// `ECHILD` where another part of the program reaped the child (or SIGCHLD is ignored) and the
    /// kernel does not keep the status; Linux 6.15 and later keep it (`PIDFD_GET_INFO`), and macOS
    /// for a kqueue that was there before (`NOTE_EXITSTATUS`).
    pub fn wait(&self) -> io::Result<Ended> {
        self.0.wait()
    }

    /// As [`wait`](Self::wait), where nobody else can be waiting or signalling: a system call less.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_alone(&mut self) -> io::Result<Ended> {
        self.0.wait_alone()
    }

    /// As [`wait`](Self::wait), but `None` at once where the child is still running.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn try_wait(&self) -> io::Result<Option<Ended>> {
        self.0.try_wait()
    }

    /// The same usage, with the peak memory where a closer look can tell that it is the child's.
    ///
    /// # Platform
    /// Linux: reads `VmHWM` of this process, if what `getrusage` says of it may have been
    /// inherited in turn. macOS: nothing is left to look for. Windows: nothing; the figure is the
    /// child's from the start.
    #[must_use]
    pub fn look_closer(&self, usage: Usage) -> Usage {
        self.0.look_closer(usage)
    }

    /// How much memory the child uses now, in bytes. `None`: it has ended, or that is not told.
    ///
    /// # Platform
    /// Linux: `VmRSS` of `/proc/PID/status`. macOS: `proc_pidinfo(PROC_PIDTASKINFO)`. Windows: the working set
    /// (`GetProcessMemoryInfo`).
    #[must_use]
    pub fn rss_bytes(&self) -> Option<u64> {
        self.0.rss_bytes()
    }

    /// Sends a signal. `false`: the child has ended and been reaped, and nobody was signalled. (A
    /// child that has ended and not been reaped takes it, and nothing comes of it.)
    ///
    /// # Platform
    /// Linux: `pidfd_send_signal`. macOS: `kill`, while the child is unreaped and its number
    /// therefore taken. Windows: `TerminateProcess` with exit code 1 for `KILL`; for `TERM`, `INT`,
    /// `QUIT` and `HUP` a Ctrl-Break (`GenerateConsoleCtrlEvent`), where the child leads a process
    /// group of its own and has our console.
    ///
    /// # Errors
    /// `EPERM`: the child has changed its user. `Unsupported` (Windows): any other signal, or one of
    /// those four to a child that cannot hear it. Nobody was signalled, and only `KILL` is left.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        self.0.signal(signal)
    }

    /// Sends a signal to the process group that the child leads (a child started with
    /// [`Group::Own`](crate::process::spawn::Group::Own)). `false`: nobody is left in it.
    ///
    /// # Platform
    /// Linux 6.9 and later: `pidfd_send_signal(PIDFD_SIGNAL_PROCESS_GROUP)`, also after the child
    /// itself is reaped. Before: `kill(-pid)`, only while the child is unreaped and its number
    /// therefore still taken; `false` afterwards. macOS: always so.
    ///
    /// Windows: a Ctrl-Break goes to the whole group, as long as the child itself has not ended; then
    /// `false`, whoever is left. `KILL` goes to the child alone.
    ///
    /// # Errors
    /// `EPERM`: no member may be signalled.
    pub fn signal_group(&self, signal: Signal) -> io::Result<bool> {
        self.0.signal_group(signal)
    }

    /// Whether the child has been stopped (Ctrl-Z) since this was asked last, and still is.
    ///
    /// # Platform
    /// Linux: `waitid(WSTOPPED)`, or the supervisor tells. macOS: `wait4(WUNTRACED)`, then
    /// `proc_pidinfo`. Windows: never.
    #[must_use]
    pub fn take_stop(&self) -> bool {
        self.0.take_stop()
    }

    /// Whether the child is stopped, or traced, at this moment.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    /// How the child is held.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.0.containment
    }

    /// The tree that it began, where that is held.
    #[must_use]
    pub fn tree(&self) -> Option<&dyn Tree> {
        self.0.tree.as_deref()
    }

    /// Gives up the tree; what is left of it goes as [`Tree`] says. Gives back a process of our
    /// own that is to be reaped, where there is one.
    #[must_use]
    pub fn leave_tree(&mut self) -> Option<ChildHandle> {
        self.0.tree.take().and_then(Tree::leave)
    }

    /// Whether the child is in the process group that bears its number. `false` once it is reaped.
    #[must_use]
    pub fn leads_its_group(&self) -> bool {
        self.0.leads_its_group()
    }

    /// Whether the child is unreaped, so that its number is nobody else's.
    #[cfg(unix)]
    pub(crate) fn keeps_its_number(&self) -> bool {
        self.0.keeps_its_number()
    }

    /// Whether the process group that the child leads can be signalled after the child is reaped.
    ///
    /// # Platform
    /// Linux: from 6.9 on. macOS: never. Windows: as before, because nothing is reaped.
    #[must_use]
    pub fn group_survives_reap(&self) -> bool {
        self.0.group_survives_reap()
    }

    /// Whether the process group that the child led has a member that has not ended. `false` where
    /// that cannot be told.
    ///
    /// # Platform
    /// Linux: signal 0 through the pidfd; where that finds somebody, `/proc` tells whether it is
    /// more than zombies. macOS: `proc_listpids(PROC_PGRP_ONLY)`, until the child is reaped.
    /// Windows does not tell.
    #[must_use]
    pub fn group_is_left(&self) -> bool {
        self.0.group_is_left()
    }
}
