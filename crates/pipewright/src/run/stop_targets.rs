//! The processes that a stop reaches: the held tree, or each child, the group that it leads, and the descendants that can
//! be found.

use std::io;
use std::time::Instant;

use pipewright_os::base::signal::Signal;
use pipewright_os::base::wait::{self, Slot};
use pipewright_os::process::child::{ChildHandle, Containment};
use pipewright_os::process::member::Member;
use pipewright_os::process::tree::{CAN_STOP, Descendants};

use super::stop_policy::KILLED_CHILD_WAIT;

/// The most searches for new descendants: processes that fork faster than they are found must not make this endless.
const MAX_ROUNDS: usize = 64;

/// The descendants of the children of a run: of one child, or of the stages of a pipeline.
#[derive(Debug, Default)]
pub(crate) struct StopTargets {
    /// Kept from the first signal on: a descendant whose parent ends in between could not be found again.
    descendants: Descendants,
}

impl StopTargets {
    /// Sends all processes a stop signal, and continues those that are stopped so that they receive it. Returns false if
    /// the signal does not exist for any of the children, and nothing was sent.
    pub(crate) fn request_stop(&mut self, children: &[ChildHandle], signal: Signal) -> bool {
        // The search stops the processes: a child that is signalled while it forks would end, and its new child could
        // not be found any more.
        self.collect(children);
        // Errors are ignored here and below: a process that has ended needs no signal, and the kill that follows finds
        // those that may not be signalled.
        let sent = self.send(children, signal);
        if signal != Signal::CONT {
            self.send(children, Signal::CONT);
        }
        sent.unsupported < children.len()
    }

    /// Kills all processes.
    ///
    /// # Errors
    /// A child may not be signalled because it has changed its user; or there was no room to find all descendants. The others
    /// are killed.
    pub(crate) fn kill(&mut self, children: &[ChildHandle]) -> io::Result<()> {
        // The error of an earlier search stays: its parent may have ended since, and then this search does not find it either.
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
            self.kill_new_descendants(children);
        }
        result.and(self.take_missed(children).map_or(Ok(()), Err))
    }

    /// Takes the error of a search that may have missed a descendant, which then got no signal. A held tree needs no search: it
    /// is killed as a whole.
    pub(crate) fn take_missed(&mut self, children: &[ChildHandle]) -> Option<io::Error> {
        let is_held = children.iter().any(|child| child.tree().is_some());
        self.descendants.take_error().filter(|_| !is_held)
    }

    /// Kills the processes that were started between the search and the kill, on systems that cannot stop processes.
    /// All others are dead by now, so each round finds fewer.
    #[cold]
    fn kill_new_descendants(&mut self, children: &[ChildHandle]) {
        for _ in 0..MAX_ROUNDS {
            let from = self.descendants.members().len();
            for child in children {
                self.descendants.collect(child);
            }
            let new_members = self.descendants.members().get(from..).unwrap_or_default();
            if new_members.is_empty() {
                return;
            }
            for member in new_members {
                // Ignored: it has ended, or has changed its user.
                let _ = member.signal(Signal::KILL);
            }
        }
    }

    /// Kills all processes, and waits for the children for as long as a kill may take, or until that time. Survivors are left
    /// to the reaper.
    #[cold]
    pub(crate) fn abandon(&mut self, children: &[ChildHandle], until: Option<Instant>) {
        // Ignored: the loop below finds the children that may not be killed, and does not wait for them.
        let _ = self.kill(children);
        let until = until.or_else(|| Instant::now().checked_add(KILLED_CHILD_WAIT));
        for child in children {
            if child.signal(Signal::KILL).is_ok() {
                // Ignored: its status is not needed.
                let _ = wait::any(&mut [Slot::Event(child)], until);
                let _ = child.try_wait();
            }
        }
    }

    /// Kills the group of a child that has ended, before the reap. Afterwards it could not be signalled if the group is
    /// addressed by the pid that the reap frees.
    pub(crate) fn before_reap(&self, child: &ChildHandle) {
        if has_own_group(child) && !child.group_survives_reap() {
            let _ = child.signal_group(Signal::KILL);
        }
    }

    /// Returns true if a tree or a group is alive. No event reports their ends, so the caller has to poll.
    pub(crate) fn group_or_tree_is_alive(&self, children: &[ChildHandle]) -> bool {
        children.iter().any(|child| match child.tree() {
            Some(tree) => tree.is_alive(),
            None => has_own_group(child) && child.group_is_alive(),
        })
    }

    /// Returns a process that has not ended yet and is not one of the children.
    pub(crate) fn remaining_member(&self, children: &[ChildHandle]) -> Option<Member> {
        let mut last = children.iter().filter_map(|child| child.tree()?.last());
        last.find(|last| last.is_alive()).or_else(|| self.descendants.any_alive()).cloned()
    }

    /// Finds the descendants and stops them, the last stage of a pipeline first. A stage whose writer ends first would
    /// treat the input so far as complete: `psql` would load half a dump.
    fn collect(&mut self, children: &[ChildHandle]) {
        for child in children.iter().rev() {
            self.descendants.stop_and_collect(child, MAX_ROUNDS);
        }
    }

    /// Sends each process the signal once: programs treat a second SIGINT differently from the first.
    fn send(&self, children: &[ChildHandle], signal: Signal) -> Sent {
        // The groups that get the signal. That of a child that has been reaped may be out of reach.
        let mut groups = Vec::new();
        let leaders = children.iter().filter(|child| has_own_group(child));
        groups.extend(leaders.filter(|child| can_reach_group(child)).map(ChildHandle::pid));
        let mut sent = Sent { result: Ok(()), unsupported: 0 };
        for child in children.iter().rev() {
            let mut result = Ok(());
            if has_own_group(child) {
                // Other errors are ignored here and below: the process has ended, or has changed its user.
                result = child.signal_group(signal).map(drop).or_else(only_unsupported);
            }
            // The child may have left the group that it was started in. A later stage may be in the group of the first.
            let is_reached = match has_own_group(child) {
                true => child.is_group_leader(),
                false => groups.iter().any(|group| child.is_in_group(*group)),
            };
            if !is_reached {
                result = child.signal(signal).map(drop);
            }
            sent.unsupported += usize::from(result.as_ref().is_err_and(is_unsupported));
            sent.result = sent.result.and(result);
        }
        for member in self.descendants.members() {
            let is_reached =
                !groups.is_empty() && member.group().is_some_and(|group| groups.contains(&group));
            if !is_reached {
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
    /// The number of children for which the signal does not exist.
    unsupported: usize,
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

fn only_unsupported(error: io::Error) -> io::Result<()> {
    if is_unsupported(&error) { Err(error) } else { Ok(()) }
}

fn can_reach_group(child: &ChildHandle) -> bool {
    child.group_survives_reap() || child.is_group_leader()
}

fn has_own_group(child: &ChildHandle) -> bool {
    child.containment() == Containment::Group
}
