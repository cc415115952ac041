//! A cgroup, a supervisor, or both.
//!
//! | file | what |
//! |---|---|
//! | `cgroup.rs` | a control group of its own |
//! | `place.rs` | the one that this process is in |
//! | `image.rs` | the supervisor's program, in memory |
//! | `report.rs` | what a supervisor tells |

pub(crate) mod cgroup;
pub(crate) mod image;
mod place;
pub(crate) mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cgroup::Cgroup;
use report::{Report, Reports};

use crate::process::child::{ChildHandle, Containment, Tree as Held};
use crate::process::member::Member;
use crate::process::tree::{add_children, is_child_of};

/// How long the end of a killed tree is waited for; more is a process that is stuck in the kernel.
const END_WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(200);

/// A tree that is held. At least one of the two is there.
#[derive(Debug)]
pub(crate) struct Tree {
    cgroup: Option<Cgroup>,
    supervisor: Option<Supervisor>,
    /// The process that the tree began with.
    command: u32,
    /// How many were killed, the command not counted.
    killed: AtomicU32,
    /// Everyone has gone, who held it included.
    is_over: AtomicBool,
}

/// The two processes that hold the tree, and what they tell.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) reports: Arc<Reports>,
    /// The parent of the command and of whoever has lost its own.
    pub(crate) supervisor: u32,
    /// The parent of that one; our child. It ends last.
    pub(crate) guard: Member,
    pub(crate) guard_exit: ChildHandle,
}

impl Tree {
    pub(crate) fn new(
        cgroup: Option<Cgroup>,
        supervisor: Option<Supervisor>,
        command: u32,
    ) -> Tree {
        let (killed, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        Tree { cgroup, supervisor, command, killed, is_over }
    }

    /// Whether nobody is left whom a kill would hit.
    fn is_empty(&self) -> bool {
        // Whoever loses its parent becomes the supervisor's, and that tells when it has none left.
        let has_ended = match &self.supervisor {
            Some(supervisor) => self.hear(supervisor),
            None => true,
        };
        // Nor can a cgroup be removed while somebody is in it: who has entered another pid namespace
        // finds another parent there.
        has_ended && self.cgroup.as_ref().is_none_or(Cgroup::remove_if_empty)
    }

    /// Takes what the two have told. Whether that is the end.
    fn hear(&self, supervisor: &Supervisor) -> bool {
        let told = supervisor.told_at_the_end();
        self.note_killed(told.unwrap_or(0));
        told.is_some()
    }

    fn end_now(&self) {
        if !self.is_empty() {
            self.kill();
        }
        let until = Instant::now() + END_WAIT;
        if let Some(supervisor) = &self.supervisor {
            supervisor.guard.wait_for_its_end(END_WAIT);
        }
        // Whoever has killed the guard has left the others to the supervisor, or to the cgroup.
        while self.is_left() && Instant::now() < until {
            thread::park_timeout(PAUSE);
        }
        if let Some(supervisor) = &self.supervisor {
            self.hear(supervisor);
            // Ignored: it is reaped with the tree if it still runs.
            let _ = supervisor.guard_exit.try_wait();
        }
    }

    /// Notes, before a kill, whom it will hit.
    fn count(&self, cgroup: &Cgroup) {
        let others = cgroup.pids().iter().filter(|pid| **pid != self.command).count();
        self.note_killed(u32::try_from(others).unwrap_or(0));
    }

    /// The largest count is the right one: a second kill finds fewer, and the supervisor does not
    /// count whom the cgroup was faster to kill.
    fn note_killed(&self, count: u32) {
        self.killed.fetch_max(count, Ordering::Relaxed);
    }
}

impl Held for Tree {
    fn containment(&self) -> Containment {
        match self.cgroup {
            Some(_) => Containment::Cgroup,
            None => Containment::Supervisor,
        }
    }

    fn kill(&self) {
        if let Some(cgroup) = &self.cgroup {
            self.count(cgroup);
            cgroup.kill();
        }
        if let Some(supervisor) = &self.supervisor {
            supervisor.reports.let_go();
        }
    }

    fn is_left(&self) -> bool {
        // A guard that was killed says nothing of the others.
        let guard = self.supervisor.as_ref().is_some_and(|it| it.guard.is_alive());
        guard || self.cgroup.as_ref().is_some_and(Cgroup::is_populated)
    }

    fn last(&self) -> Option<&Member> {
        self.supervisor.as_ref().map(|supervisor| &supervisor.guard)
    }

    fn end(&self) -> u32 {
        if !self.is_over.load(Ordering::Relaxed) {
            self.end_now();
            self.is_over.store(!self.is_left(), Ordering::Relaxed);
        }
        self.killed.load(Ordering::Relaxed)
    }

    fn collect(&self, members: &mut Vec<Member>) {
        if let Some(cgroup) = &self.cgroup {
            for pid in cgroup.pids().into_iter().filter(|pid| *pid != self.command) {
                if let Some(member) = Member::open(pid, members, || cgroup.pids().contains(&pid)) {
                    members.push(member);
                }
            }
        } else if let Some(Supervisor { supervisor, guard, .. }) = &self.supervisor {
            // A child of the guard's keeps its number until the guard has reaped it.
            let is_it = || is_child_of(*supervisor, guard);
            add_children(*supervisor, is_it, members);
            members.retain(|member| member.pid() != self.command);
        }
    }

    fn leave(self: Box<Self>) -> Option<ChildHandle> {
        self.supervisor.map(|supervisor| supervisor.guard_exit)
    }
}

impl Supervisor {
    /// How many it has killed, once it has told.
    fn told_at_the_end(&self) -> Option<u32> {
        loop {
            match self.reports.take() {
                Ok(Some(Report::TreeEnded(count))) => return Some(count),
                Ok(Some(Report::EndedLast(..))) => return Some(0),
                Ok(Some(Report::Nothing) | None) | Err(_) => return None,
                Ok(Some(_)) => {}
            }
        }
    }
}
