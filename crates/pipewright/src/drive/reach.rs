//! Whom a stop reaches: the tree that is held, or the child, the group it leads, and the descendants
//! that can be found.

use std::io;

use pipewright_os::contain::Containment;
use pipewright_os::exit::Exit;
use pipewright_os::signal::Signal;
use pipewright_os::tree::{Descendants, Member};

/// Searches at most so often for new descendants while it stops them: a storm of forks that is
/// faster than we are is no reason to go on for ever.
const MOST_ROUNDS: usize = 64;

/// Those below a child.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Kept from the first signal on: a descendant whose parent ends in between could not be found
    /// a second time.
    descendants: Descendants,
}

impl Reach {
    /// Sends everyone a signal that asks, and wakes those that are stopped so that they hear it.
    pub(crate) fn ask(&mut self, child: &Exit, signal: Signal) {
        // Stopped while the list is made: a child that is asked while it forks would end and leave
        // behind one whom nobody could find any more.
        self.descendants.stop_and_collect(child, MOST_ROUNDS);
        // Ignored here and below: who has ended meanwhile needs no signal; whom we may not signal
        // is found out by the kill that follows.
        let _ = self.send(child, signal);
        if signal != Signal::CONT {
            let _ = self.send(child, Signal::CONT);
        }
    }

    /// Kills everyone.
    ///
    /// # Errors
    /// The child may not be signalled by us: it has become another user's.
    pub(crate) fn kill(&mut self, child: &Exit) -> io::Result<()> {
        if let Some(tree) = child.tree() {
            tree.kill();
            return child.signal(Signal::KILL).map(drop);
        }
        self.descendants.stop_and_collect(child, MOST_ROUNDS);
        let sent = self.send(child, Signal::KILL);
        if has_own_group(child) {
            // It may have left the group that it was started in.
            return child.signal(Signal::KILL).map(drop);
        }
        sent
    }

    /// The child has ended and is about to be reaped: the last moment at which its group can be
    /// signalled, where that goes by the number that the reap frees.
    pub(crate) fn before_reap(&self, child: &Exit) {
        if has_own_group(child) && !child.group_survives_reap() {
            let _ = child.signal_group(Signal::KILL);
        }
    }

    /// Whether someone is left for whose end there is nothing to wait on.
    pub(crate) fn others_are_left(&self, child: &Exit) -> bool {
        match child.tree() {
            Some(tree) => tree.is_left(),
            None => has_own_group(child) && child.group_is_left(),
        }
    }

    /// Somebody other than the child who has not ended yet.
    pub(crate) fn someone_left(&self, child: &Exit) -> Option<Member> {
        let last = child.tree().and_then(|tree| tree.last()).filter(|last| last.is_alive());
        last.or_else(|| self.descendants.any_alive()).cloned()
    }

    /// Sends everyone the signal, each once: a second SIGINT is more than twice a first.
    fn send(&self, child: &Exit, signal: Signal) -> io::Result<()> {
        let group = has_own_group(child).then(|| child.pid());
        for member in self.descendants.members() {
            if group.is_none() || member.group() != group {
                // Ignored: gone, or another user's.
                let _ = member.signal(signal);
            }
        }
        if group.is_some() {
            let _ = child.signal_group(signal);
        }
        if group.is_none() || !child.leads_its_group() {
            child.signal(signal)?;
        }
        Ok(())
    }
}

fn has_own_group(child: &Exit) -> bool {
    child.containment() == Containment::Group
}
