//! The processes of a run: several children, a handle to them, and a child in the foreground of the terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io, mem};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait;
use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::status::ExitStatus;
use pipewright_os::process::terminal::{self, Foreground};
use pipewright_os::process::usage::Usage;

use super::run::{Children, OwnedProcess};
use super::stop::StopTargets;
use crate::error::Error;
use crate::trace::Trace;

/// Owns the handles of several children, as [`OwnedProcess`] owns one.
#[derive(Debug)]
pub(crate) struct Processes {
    children: Vec<ChildHandle>,
    /// The process that has started them.
    made_in: Generation,
    on_drop: Option<fn(&ChildHandle)>,
    /// One span per child.
    trace: Trace,
    /// True if any child that failed makes the whole fail, not only the last.
    pipefail: bool,
}

impl Processes {
    pub(crate) fn with_room_for(count: usize, pipefail: bool) -> Processes {
        let made_in = Generation::current();
        let children = Vec::with_capacity(count);
        Processes { children, made_in, on_drop: None, trace: Trace::default(), pipefail }
    }

    /// Adds a child after the others. If one child is killed on drop, all are.
    pub(crate) fn push(&mut self, mut process: OwnedProcess) {
        self.on_drop = self.on_drop.or(process.on_drop);
        self.trace.extend(mem::take(&mut process.trace));
        self.children.push(mem::take(&mut process.child));
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // Each child is reaped, or goes to the reaper if it still runs.
        for child in self.children.drain(..) {
            let (made_in, on_drop) = (self.made_in, self.on_drop);
            drop(OwnedProcess { child, made_in, on_drop, trace: self.trace.take_first() });
        }
    }
}

impl Children for Processes {
    fn handles(&self) -> &[ChildHandle] {
        &self.children
    }

    fn made_in(&self) -> Generation {
        self.made_in
    }

    fn trace(&self) -> Trace {
        self.trace.clone()
    }

    fn status(&self) -> io::Result<ExitStatus> {
        let ended: io::Result<Vec<_>> = self.children.iter().map(|child| child.wait()).collect();
        let ended = ended?;
        let decided_by = deciding_stage(ended.iter().map(|ended| ended.status), self.pipefail);
        Ok(ended.get(decided_by).map_or_else(ExitStatus::default, |ended| ended.status))
    }
}

/// A handle to the processes of a run that is driven step by step. Other threads can signal and kill them while the run
/// is waited for.
///
/// # Drop
/// Does nothing. But a tree that is held ends only when the run and all handles to it are dropped.
#[derive(Debug, Clone)]
pub struct RunHandle(Arc<dyn Children>);

/// The end of one process of a run: of a command, or of a stage of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildEnd {
    /// The process id that it had.
    pub pid: u32,
    /// The exit status.
    pub status: ExitStatus,
    /// CPU time and memory; `None` if other code in this program reaped it.
    pub usage: Option<Usage>,
}

impl RunHandle {
    pub(super) fn new(processes: Arc<dyn Children>) -> RunHandle {
        RunHandle(processes)
    }

    /// Waits for the ends of the processes, and returns them. Those of a pipeline's stages are in their order.
    ///
    /// # Errors
    /// A status is lost ([`ErrorKind::StatusLost`](crate::ErrorKind::StatusLost)).
    pub fn ends(&self) -> Result<Vec<ChildEnd>, Error> {
        let end = |child: &ChildHandle| {
            let ended = child.wait()?;
            let usage = ended.usage.map(|usage| child.refine_peak_memory(usage));
            Ok(ChildEnd { pid: child.pid(), status: ended.status, usage })
        };
        let ends: io::Result<Vec<ChildEnd>> = self.0.handles().iter().map(end).collect();
        ends.map_err(|error| Error::cannot(self.name().as_ref(), "wait for", error))
    }

    /// Kills the processes and the descendants that can be found, or the whole tree if it is contained. Does not wait
    /// for their end.
    ///
    /// # Errors
    /// A process has changed its user, so this process may not signal it.
    pub fn kill(&self) -> Result<(), Error> {
        let killed = StopTargets::default().kill(self.0.handles());
        killed.map_err(|error| Error::cannot(self.name().as_ref(), "kill", error))
    }

    /// Sends a signal to the processes themselves, not to their descendants. Returns `false` if all have ended.
    ///
    /// # Errors
    /// A process has changed its user, so this process may not signal it.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        let mut sent = false;
        for child in self.0.handles().iter() {
            let result = child.signal(signal);
            sent |= result.map_err(|e| Error::cannot(self.name().as_ref(), "signal", e))?;
        }
        Ok(sent)
    }

    /// Returns the process ids; those of a pipeline's stages are in their order.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.0.handles().iter().map(ChildHandle::pid).collect()
    }

    /// Returns the mechanism that contains the first process.
    #[must_use]
    pub fn containment(&self) -> Containment {
        self.0.handles().first().map_or(Containment::None, ChildHandle::containment)
    }

    fn name(&self) -> String {
        self.0.handles().first().map_or(0, ChildHandle::pid).to_string()
    }
}

/// Returns the index of the stage that decides the status of the whole.
pub(crate) fn deciding_stage(
    statuses: impl DoubleEndedIterator<Item = ExitStatus> + ExactSizeIterator,
    pipefail: bool,
) -> usize {
    let last = statuses.len().saturating_sub(1);
    let failed = |index: usize, status: ExitStatus| {
        !status.success() && (index == last || !is_broken_pipe(status))
    };
    let mut right_most = statuses.enumerate().rev();
    match right_most.find(|(index, status)| pipefail && failed(*index, *status)) {
        Some((index, _)) => index,
        None => last,
    }
}

/// Returns true if the stage ended because its reader closed the pipe: by the signal, or by a shell's code for it.
fn is_broken_pipe(status: ExitStatus) -> bool {
    const SHELL_BASE: i32 = 128;
    let number = Signal::PIPE.number();
    status.signal() == Some(number) || status.code() == Some(SHELL_BASE + number)
}

/// The polling interval for stops that the system does not report. Short, because a person at a terminal waits.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The time that it takes to continue all processes of a group.
const CONTINUE_TIME: Duration = Duration::from_millis(20);

/// Opens the controlling terminal. Called through a pointer: see [`on_demand`](super::on_demand).
pub(crate) type OpenForeground = fn() -> Option<Arc<dyn ForegroundJob>>;

/// The terminal as a run sees it.
pub(crate) trait ForegroundJob: fmt::Debug + Send + Sync {
    /// Returns the terminal, for the child to take; `None` if another job is in the foreground.
    fn terminal(&self) -> Option<&Foreground>;

    /// Stops this process if the child has been stopped, and continues the child when this process is continued. Hands
    /// the terminal over if this job has been brought to the foreground.
    fn follow_stops(&self, children: &[ChildHandle]);

    /// Takes the terminal back: the children have ended. A caller reads it before it drops their handles.
    fn ended(&self);
}

pub(super) fn open_foreground() -> Option<Arc<dyn ForegroundJob>> {
    let terminal = Foreground::controlling()?;
    let made_in = Generation::current();
    let is_shared = terminal::is_shared();
    let is_given = AtomicBool::new(!is_shared && terminal.is_ours());
    Some(Arc::new(ForegroundTerminal { terminal, made_in, is_shared, is_given }))
}

/// The terminal. A drop takes it back from the child.
#[derive(Debug)]
struct ForegroundTerminal {
    terminal: Foreground,
    /// The process whose job it is: not a fork of it.
    made_in: Generation,
    /// Other processes of this process's group may use the terminal, and so no child gets it.
    is_shared: bool,
    /// This job is believed to be in the foreground: a child with its own group has got the terminal. In the
    /// background the terminal must not be taken from the job that has it.
    is_given: AtomicBool,
}

impl ForegroundJob for ForegroundTerminal {
    fn terminal(&self) -> Option<&Foreground> {
        Some(&self.terminal).filter(|_| self.is_given.load(Ordering::Relaxed))
    }

    fn follow_stops(&self, children: &[ChildHandle]) {
        if !self.is_shared && !self.is_given.load(Ordering::Relaxed) && self.terminal.is_ours() {
            // The shell (`fg`) knows only the group of this process. A child with its own group may have been stopped
            // since, because it has read the terminal.
            self.give_back(children);
            take_stops(children);
            return;
        }
        let mut have_stopped = take_stops(children);
        while have_stopped && stays_stopped(children) {
            // The parent of this process sees the job stop, as it would have seen the command itself stop.
            self.take_back();
            terminal::stop_this_process();
            self.give_back(children);
            have_stopped = continue_others(children);
        }
    }

    fn ended(&self) {
        self.take_back();
    }
}

impl ForegroundTerminal {
    fn take_back(&self) {
        if self.made_in.is_current() && self.is_given.swap(false, Ordering::Relaxed) {
            self.terminal.take_back();
        }
    }

    /// Continues children that have their own group, as a shell does.
    fn give_back(&self, children: &[ChildHandle]) {
        let in_front = !self.is_shared && self.terminal.is_ours();
        self.is_given.store(in_front, Ordering::Relaxed);
        for child in children.iter().filter(|child| has_own_group(child)) {
            if in_front {
                self.terminal.give_to(child.pid());
            }
            // Ignored: it has ended meanwhile, which the next step notices.
            let _ = child.signal_group(Signal::CONT);
        }
    }
}

fn has_own_group(child: &ChildHandle) -> bool {
    child.containment() == Containment::Group
}

/// Returns true if a child has stopped since the last call.
fn take_stops(children: &[ChildHandle]) -> bool {
    children.iter().filter(|child| child.take_stop()).count() > 0
}

/// Continues children that share this process's group, if only this process was continued. Returns true if a child has
/// stopped again meanwhile: continuing it would undo a Ctrl-Z that came in between.
fn continue_others(children: &[ChildHandle]) -> bool {
    let needs_continue = |child: &&ChildHandle| !has_own_group(child) && child.is_stopped();
    if children.iter().any(|child| needs_continue(&child)) {
        // The last processes of the group may not have been continued yet.
        let _ = wait::any(&mut [], Some(Instant::now() + CONTINUE_TIME));
    }
    if take_stops(children) {
        return true;
    }
    for child in children.iter().filter(needs_continue) {
        // Ignored as above.
        let _ = child.signal(Signal::CONT);
    }
    false
}

/// Returns true if a child stays stopped for longer than it takes to continue a whole group. Ctrl-Z also stops this
/// process if the child shares its group, and this process may be continued before the child. Stopping again because of
/// that would stop a job that somebody has just continued.
fn stays_stopped(children: &[ChildHandle]) -> bool {
    loop {
        let began = Instant::now();
        // Ignored: a wait without events cannot fail.
        let _ = wait::any(&mut [], Some(began + CONTINUE_TIME));
        if !children.iter().any(ChildHandle::is_stopped) {
            return false;
        }
        // If it took much longer, this process was stopped meanwhile and the answer is unreliable: check again.
        if began.elapsed() < 4 * CONTINUE_TIME {
            return true;
        }
    }
}

impl Drop for ForegroundTerminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

#[cfg(test)]
mod tests {
    use pipewright_os::base::skipped::{Need, skipped};

    use super::*;

    /// Returns the index of the deciding stage for these wait statuses.
    fn decides(raw: &[i32], pipefail: bool) -> usize {
        deciding_stage(raw.iter().map(|raw| ExitStatus::from_raw(*raw)), pipefail)
    }

    const PIPE: i32 = 13;
    const KILL: i32 = 9;
    const fn exit(code: i32) -> i32 {
        code << 8
    }

    #[test]
    fn the_right_most_failed_stage_decides() {
        assert_eq!(decides(&[0, 0, 0], true), 2);
        assert_eq!(decides(&[exit(1), exit(2), 0], true), 1);
        assert_eq!(decides(&[exit(1), 0, 0], true), 0);
        assert_eq!(decides(&[KILL, 0, exit(3)], true), 2);
        assert_eq!(decides(&[exit(1), exit(2), 0], false), 2);
    }

    #[test]
    fn sigpipe_is_a_failure_only_in_the_last_stage() {
        if ExitStatus::from_raw(PIPE).signal().is_none() {
            return skipped(Need::Unix, "no signal ends a process here");
        }
        assert_eq!(decides(&[PIPE, 0], true), 1);
        assert_eq!(decides(&[exit(141), 0], true), 1);
        assert_eq!(decides(&[exit(1), PIPE, 0], true), 0);
        assert_eq!(decides(&[0, PIPE], true), 1, "only this process reads from the last");
        assert_eq!(decides(&[exit(1), 0, exit(141)], true), 2);
    }
}
