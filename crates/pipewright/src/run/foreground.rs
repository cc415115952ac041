//! A child in front of the terminal: it is given the terminal, and its stops are followed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait;
use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::terminal::{self, Foreground};

/// The interval at which a child is looked at whose stop nobody reports. A person at a terminal waits.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// From the first process of a group that is continued to the last.
const CONTINUE_TAKES: Duration = Duration::from_millis(20);

/// Opens the terminal if it is ours to give. By a pointer: see [`on_demand`](crate::run::on_demand).
pub(crate) type OpenForeground = fn() -> Option<Arc<dyn ForegroundJob>>;

/// The terminal as a run sees it.
pub(crate) trait ForegroundJob: fmt::Debug + Send + Sync {
    /// The terminal, for the child to take.
    fn terminal(&self) -> &Foreground;

    /// Stops this process where the child has been stopped, and continues the child when this
    /// process is continued.
    fn follow_stops(&self, children: &[ChildHandle]);
}

pub(super) fn open_foreground() -> Option<Arc<dyn ForegroundJob>> {
    let terminal = Foreground::own()?;
    Some(Arc::new(TerminalHold { terminal }))
}

/// The terminal, which is taken back at the end.
#[derive(Debug)]
struct TerminalHold {
    terminal: Foreground,
}

impl ForegroundJob for TerminalHold {
    fn terminal(&self) -> &Foreground {
        &self.terminal
    }

    fn follow_stops(&self, children: &[ChildHandle]) {
        let mut have_stopped = take_stops(children);
        while have_stopped && stays_stopped(children) {
            // Whoever started us sees the job stop as it would have seen the command itself.
            self.terminal.take_back();
            terminal::stop_this_process();
            self.give_back(children);
            have_stopped = continue_others(children);
        }
    }
}

impl TerminalHold {
    /// Continues children that have a group of their own, as a shell does.
    fn give_back(&self, children: &[ChildHandle]) {
        let in_front = self.terminal.is_ours();
        for child in children.iter().filter(|child| has_own_group(child)) {
            if in_front {
                self.terminal.give_to(child.pid());
            }
            // Ignored: it has ended meanwhile, and the next step finds that out.
            let _ = child.signal_group(Signal::CONT);
        }
    }
}

fn has_own_group(child: &ChildHandle) -> bool {
    child.containment() == Containment::Group
}

/// Returns true if one has stopped since the last call.
fn take_stops(children: &[ChildHandle]) -> bool {
    children.iter().filter(|child| child.take_stop()).count() > 0
}

/// Continues children that share our group where we alone were continued. Whether one has stopped again by now: to
/// continue that would undo a Ctrl-Z that came while we were on our way.
fn continue_others(children: &[ChildHandle]) -> bool {
    let needs_continue = |child: &&ChildHandle| !has_own_group(child) && child.is_stopped();
    if children.iter().any(|child| needs_continue(&child)) {
        // The group may not have been continued to its last, yet.
        let _ = wait::any(&mut [], Some(Instant::now() + CONTINUE_TAKES));
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

/// Returns true if a child that was seen stopped is so for longer than it takes to continue a whole group:
/// where it shares ours, Ctrl-Z stops us as well, and when we are continued it may not have been,
/// yet. To stop for that again would stop a job that somebody has just continued.
fn stays_stopped(children: &[ChildHandle]) -> bool {
    loop {
        let began = Instant::now();
        // Ignored: a wait for nothing has no error of its own.
        let _ = wait::any(&mut [], Some(began + CONTINUE_TAKES));
        if !children.iter().any(ChildHandle::is_stopped) {
            return false;
        }
        // Much longer than that: we have been stopped meanwhile, and know nothing.
        if began.elapsed() < 4 * CONTINUE_TAKES {
            return true;
        }
    }
}

impl Drop for TerminalHold {
    fn drop(&mut self) {
        self.terminal.take_back();
    }
}
