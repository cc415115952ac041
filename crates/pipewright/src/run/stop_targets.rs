//! The processes that a stop reaches: the tree that is held, or each child, the group it leads, and the
//! descendants that can be found.

use std::io;
use std::time::Instant;

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::member::Member;
use pipewright_os::process::tree::{CAN_STOP, Descendants};

use super::stop_policy::KILLED_CHILD_WAIT;

/// Searches at most so often for new descendants while it stops them: a storm of forks that is
/// faster than we are is no reason to go on for ever.
const MOST_ROUNDS: usize = 64;

/// Those below the children of a run: one, or the stages of a pipeline.
#[derive(Debug, Default)]
pub(crate) struct StopTargets {
    /// EnforcedRun from the first signal on: a descendant whose parent ends in between could not be found
    /// a second time.
    descendants: Descendants,
}

impl StopTargets {
    /// Sends everyone a signal that asks, and wakes those that are stopped so that they hear it.
    /// `false`: there is no such signal for any of the children, and nobody was asked.
    pub(crate) fn request_stop(&mut self, children: &[ChildHandle], signal: Signal) -> bool {
        // Stopped while the list is made: a child that is asked while it forks would end and leave
        // behind one whom nobody could find any more.
        self.collect(children);
        // Ignored here and below: who has ended meanwhile needs no signal; whom we may not signal
        // is found out by the kill that follows.
        let sent = self.send(children, signal);
        if signal != Signal::CONT {
            self.send(children, Signal::CONT);
        }
        sent.unsupported < children.len()
    }

    /// Kills everyone.
    ///
    /// # Errors
    /// A child may not be signalled by us: it has become another user's. The others are killed.
    pub(crate) fn kill(&mut self, children: &[ChildHandle]) -> io::Result<()> {
        let mut is_held = false;
        for tree in children.iter().filter_map(ChildHandle::tree) {
            tree.kill();
            is_held = true;
        }
        if !is_held {
            self.collect(children);
        }
        let Sent { result, .. } = self.send(children, Signal::KILL);
        if !is_held && !CAN_STOP {
            self.kill_latecomers(children);
        }
        result
    }

    /// Where nobody can be stopped: those whom somebody has started between the search and the kill.
    /// All the others are dead by now, so there are fewer of them each time.
    #[cold]
    fn kill_latecomers(&mut self, children: &[ChildHandle]) {
        for _ in 0..MOST_ROUNDS {
            let from = self.descendants.members().len();
            for child in children {
                self.descendants.collect(child);
            }
            let latecomers = self.descendants.members().get(from..).unwrap_or_default();
            if latecomers.is_empty() {
                return;
            }
            for member in latecomers {
                // Ignored: gone, or another user's.
                let _ = member.signal(Signal::KILL);
            }
        }
    }

    /// Kills all, and waits for them as long as that can be expected to help. Who is left then is
    /// left to the reaper.
    #[cold]
    pub(crate) fn abandon(&mut self, children: &[ChildHandle]) {
        // Ignored: whom we may not kill is found out below, and not waited for.
        let _ = self.kill(children);
        let until = Instant::now().checked_add(KILLED_CHILD_WAIT);
        for child in children {
            if child.signal(Signal::KILL).is_ok() {
                // Ignored: its status is of no use now.
                let _ = wait::any(&mut [Slot::Event(child)], until);
                let _ = child.try_wait();
            }
        }
    }

    /// The child has ended and is about to be reaped: the last moment at which its group can be
    /// signalled, where that goes by the number that the reap frees.
    pub(crate) fn before_reap(&self, child: &ChildHandle) {
        if has_own_group(child) && !child.group_survives_reap() {
            let _ = child.signal_group(Signal::KILL);
        }
    }

    /// Whether someone is left for whose end there is nothing to wait on.
    pub(crate) fn others_are_left(&self, children: &[ChildHandle]) -> bool {
        children.iter().any(|child| match child.tree() {
            Some(tree) => tree.is_alive(),
            None => has_own_group(child) && child.group_is_alive(),
        })
    }

    /// Somebody other than the children who has not ended yet.
    pub(crate) fn someone_left(&self, children: &[ChildHandle]) -> Option<Member> {
        let mut last = children.iter().filter_map(|child| child.tree()?.last());
        last.find(|last| last.is_alive()).or_else(|| self.descendants.any_alive()).cloned()
    }

    /// The last stage of a pipeline first: one whose writer is stopped before it would take the end
    /// of its input for the whole of it, and load half a dump.
    fn collect(&mut self, children: &[ChildHandle]) {
        for child in children.iter().rev() {
            self.descendants.stop_and_collect(child, MOST_ROUNDS);
        }
    }

    /// Sends everyone the signal, each once: a second SIGINT is more than twice a first.
    fn send(&self, children: &[ChildHandle], signal: Signal) -> Sent {
        let any_group = children.iter().any(has_own_group);
        let is_led = |group: Option<u32>| {
            children.iter().any(|child| has_own_group(child) && Some(child.pid()) == group)
        };
        let mut sent = Sent { result: Ok(()), unsupported: 0 };
        for child in children.iter().rev() {
            let mut result = Ok(());
            if has_own_group(child) {
                // Other errors are ignored here and below: gone, or another user's.
                result = child.signal_group(signal).map(drop).or_else(only_unsupported);
            }
            // It may have left the group that it was started in.
            if !has_own_group(child) || !child.is_group_leader() {
                result = child.signal(signal).map(drop);
            }
            sent.unsupported += usize::from(result.as_ref().is_err_and(is_unsupported));
            sent.result = sent.result.and(result);
        }
        for member in self.descendants.members() {
            if !any_group || !is_led(member.group()) {
                let _ = member.signal(signal);
            }
        }
        sent
    }
}

/// The result of a signal to all.
struct Sent {
    /// The first error.
    result: io::Result<()>,
    /// The number of children that the signal does not exist for.
    unsupported: usize,
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

fn only_unsupported(error: io::Error) -> io::Result<()> {
    if is_unsupported(&error) { Err(error) } else { Ok(()) }
}

fn has_own_group(child: &ChildHandle) -> bool {
    child.containment() == Containment::Group
}
