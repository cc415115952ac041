//! A child in the foreground: it gets the terminal, and this process stops when the child is stopped.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pipewright_os::base::generation::Generation;
use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait;
use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::terminal::{self, Foreground};

/// The polling interval for stops that the system does not report. Short, because a person at a terminal waits.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The time that it takes to continue all processes of a group.
const CONTINUE_TIME: Duration = Duration::from_millis(20);

/// Opens the controlling terminal. Called through a pointer: see [`on_demand`](crate::run::on_demand).
pub(crate) type OpenForeground = fn() -> Option<Arc<dyn ForegroundJob>>;

/// The terminal as a run sees it.
pub(crate) trait ForegroundJob: fmt::Debug + Send + Sync {
    /// Returns the terminal, for the child to take; `None` if another job is in the foreground.
    fn terminal(&self) -> Option<&Foreground>;

    /// Stops this process if the child has been stopped, and continues the child when this process is continued. Hands the
    /// terminal over if this job has been brought to the foreground.
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
    /// This job is in the foreground, as far as is known: a child with its own group has got the terminal. In the background
    /// the terminal must not be taken from the job that has it.
    is_given: AtomicBool,
}

impl ForegroundJob for ForegroundTerminal {
    fn terminal(&self) -> Option<&Foreground> {
        Some(&self.terminal).filter(|_| self.is_given.load(Ordering::Relaxed))
    }

    fn follow_stops(&self, children: &[ChildHandle]) {
        if !self.is_shared && !self.is_given.load(Ordering::Relaxed) && self.terminal.is_ours() {
            // The shell (`fg`) knows only the group of this process. A child with its own group may have been stopped since,
            // because it has read the terminal.
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
