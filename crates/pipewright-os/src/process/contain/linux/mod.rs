//! A tree is held by a cgroup, a supervisor, or both.
//!
//! | file | contents |
//! |---|---|
//! | `cgroup.rs` | a control group for one tree |
//! | `place.rs` | the cgroup that this process is in |
//! | `limits/` | the groups of a tree's limits, and their figures |
//! | `image.rs` | the supervisor's program, in memory |
//! | `report.rs` | the messages of a supervisor, and the exit status of a command from them |
//! | `job.rs` | the tree of one command of a slot |

pub(crate) mod cgroup;
pub(crate) mod image;
pub(crate) mod job;
pub(crate) mod limits;
mod place;
pub(crate) mod report;

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use std::{fmt, io};

use cgroup::Cgroup;
use limits::SampledTree;
pub(crate) use place::own_cgroup_path;
use report::{Reports, SupervisorReport};

use super::EndWait;
use crate::base::generation::Generation;
use crate::base::signal::Signal;
use crate::process::child::{ChildHandle, ContainedTree, Containment};
use crate::process::limits::TreeResources;
use crate::process::member::Member;
use crate::process::tree::{add_children, is_child_of};

const PAUSE: Duration = Duration::from_micros(200);

/// A contained tree. It has a cgroup, a supervisor, or both.
#[derive(Debug)]
pub(crate) struct LinuxTree {
    /// The process that holds it. A fork of it must not end it.
    made_in: Generation,
    cgroup: Option<Arc<Cgroup>>,
    supervisor: Option<Supervisor>,
    /// The process at the root of the tree.
    command: u32,
    /// The number of killed processes, not counting the command.
    killed: AtomicU32,
    /// True if every process has gone, the guard and the supervisor included.
    has_ended: AtomicBool,
    /// The groups of its limits, if it has limits.
    meter: Option<Box<dyn TreeMeter>>,
    /// The resources, once every process has gone.
    resources: OnceLock<TreeResources>,
}

/// The groups that hold the limits of a tree. A trait object, so that programs without limits do not contain its code.
pub(crate) trait TreeMeter: fmt::Debug + Send + Sync {
    /// Begins to look at a tree that has been started.
    fn begin(&self, tree: SampledTree);

    /// Returns the resources that the tree has used so far, and the limits in force.
    fn resources(&self, cgroup: Option<&Cgroup>) -> TreeResources;

    /// Returns the paths of the groups beside the cgroup, which a supervisor removes if this process is killed.
    fn group_paths(&self) -> Vec<CString>;
}

/// The guard and the supervisor, and their reports.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) reports: Arc<Reports>,
    /// The parent of the command and of every descendant that has lost its own parent.
    pub(crate) supervisor: u32,
    /// The parent of the supervisor; a child of this process. It ends last.
    pub(crate) guard: Member,
    pub(crate) guard_exit: ChildHandle,
}

impl LinuxTree {
    pub(crate) fn new(
        cgroup: Option<Cgroup>,
        supervisor: Option<Supervisor>,
        command: u32,
    ) -> LinuxTree {
        let (killed, has_ended) = (AtomicU32::new(0), AtomicBool::new(false));
        let (resources, cgroup) = (OnceLock::new(), cgroup.map(Arc::new));
        let made_in = Generation::current();
        LinuxTree {
            made_in,
            cgroup,
            supervisor,
            command,
            killed,
            has_ended,
            meter: None,
            resources,
        }
    }

    /// Adds the groups of its limits.
    pub(crate) fn with_meter(mut self, meter: Option<Box<dyn TreeMeter>>) -> LinuxTree {
        if let Some(meter) = &meter {
            meter.begin(SampledTree {
                cgroup: self.cgroup.as_ref().map(Arc::downgrade),
                supervisor: self
                    .supervisor
                    .as_ref()
                    .map(|it| (Arc::downgrade(&it.reports), it.supervisor, it.guard.clone())),
            });
        } else if let Some(cgroup) = self.cgroup.as_mut().and_then(Arc::get_mut) {
            cgroup.close_dir();
        }
        self.meter = meter;
        self
    }

    /// Returns true if no process is left that a kill would hit.
    fn is_empty(&self) -> bool {
        // The supervisor adopts every descendant that loses its parent, and reports when it has no child
        // left.
        let is_over = match &self.supervisor {
            Some(supervisor) => self.read_reports(supervisor),
            None => true,
        };
        // A process that has entered another pid namespace gets another parent there. But a cgroup cannot
        // be removed while a process is in it.
        is_over && self.cgroup.as_ref().is_none_or(|cgroup| self.is_unused(cgroup))
    }

    fn is_unused(&self, cgroup: &Cgroup) -> bool {
        match self.meter {
            // Its figures go with it.
            Some(_) => !cgroup.is_populated(),
            None => cgroup.remove_if_empty(),
        }
    }

    /// Reads the reports so far. Returns true if they include the end of the tree.
    fn read_reports(&self, supervisor: &Supervisor) -> bool {
        let killed = supervisor.final_killed_count();
        self.record_killed(killed.unwrap_or(0));
        killed.is_some()
    }

    fn end_now(&self) {
        if !self.is_empty() {
            self.kill();
        }
        let mut wait = EndWait::new();
        if self.guard_waits() {
            self.read_figures(&mut wait);
        }
        if let Some(supervisor) = &self.supervisor {
            supervisor.wait_for_guard(&mut wait);
        }
        // If the guard has been killed, the supervisor or the cgroup still holds the others.
        self.wait_until_dead(&mut wait);
        if let Some(supervisor) = &self.supervisor {
            self.read_reports(supervisor);
            // Ignored: if it still runs, it is reaped with the tree.
            let _ = supervisor.guard_exit.try_wait();
        }
    }

    /// Returns true if the guard waits for this process after the end of the tree, to remove its groups.
    fn guard_waits(&self) -> bool {
        self.meter.is_some() && self.cgroup.is_some() && self.supervisor.is_some()
    }

    /// Reads the figures of the groups once all processes have gone, and lets the guard remove the groups.
    fn read_figures(&self, wait: &mut EndWait) {
        self.wait_until_dead(wait);
        if let (false, Some(meter)) = (self.is_alive(), &self.meter) {
            self.resources.get_or_init(|| meter.resources(self.cgroup.as_deref()));
            self.supervisor.iter().for_each(|it| release_groups(&it.reports));
        }
    }

    fn wait_until_dead(&self, wait: &mut EndWait) {
        while self.is_alive() && wait.next().is_some() {
            thread::park_timeout(PAUSE);
        }
    }

    /// Counts, before a kill, the processes that it will hit.
    fn record_targets(&self, cgroup: &Cgroup) {
        // Ignored: there is no room to count them, which must not keep them from being killed.
        let Ok(pids) = cgroup.pids() else { return };
        let others = pids.iter().filter(|pid| **pid != self.command).count();
        self.record_killed(u32::try_from(others).unwrap_or(0));
    }

    /// Records a count. The largest one is right: a second kill finds fewer, and the supervisor does not
    /// count processes that the cgroup killed first.
    fn record_killed(&self, count: u32) {
        self.killed.fetch_max(count, Ordering::Relaxed);
    }
}

impl ContainedTree for LinuxTree {
    fn containment(&self) -> Containment {
        match self.cgroup {
            Some(_) => Containment::Cgroup,
            None => Containment::Supervisor,
        }
    }

    fn kill(&self) {
        if !self.made_in.is_current() {
            return;
        }
        if let Some(cgroup) = &self.cgroup {
            self.record_targets(cgroup);
            cgroup.kill();
        }
        if let Some(supervisor) = &self.supervisor {
            supervisor.reports.announce_end();
            supervisor.request_end();
        }
    }

    fn is_alive(&self) -> bool {
        // The end of a guard that was killed does not mean that the others have ended.
        let guard = self.supervisor.as_ref().filter(|_| !self.guard_waits());
        guard.is_some_and(|it| it.guard.is_alive())
            || self.cgroup.as_ref().is_some_and(|cgroup| cgroup.is_populated())
    }

    fn last(&self) -> Option<&Member> {
        self.supervisor.as_ref().filter(|_| !self.guard_waits()).map(|supervisor| &supervisor.guard)
    }

    fn end(&self) -> u32 {
        if self.made_in.is_current() && !self.has_ended.load(Ordering::Relaxed) {
            self.end_now();
            self.has_ended.store(!self.is_alive(), Ordering::Relaxed);
        }
        self.killed.load(Ordering::Relaxed)
    }

    fn collect(&self, members: &mut Vec<Member>) -> io::Result<()> {
        let mut result = Ok(());
        if let Some(cgroup) = &self.cgroup {
            for pid in cgroup.pids()?.into_iter().filter(|pid| *pid != self.command) {
                let belongs = || Ok(cgroup.pids()?.contains(&pid));
                match Member::open(pid, members, belongs) {
                    Ok(member) => members.extend(member),
                    Err(error) => result = result.and(Err(error)),
                }
            }
        } else if let Some(Supervisor { supervisor, guard, .. }) = &self.supervisor {
            // A child of the guard keeps its number until the guard has reaped it.
            let is_it = || is_child_of(*supervisor, guard);
            result = add_children(*supervisor, is_it, members);
            members.retain(|member| member.pid() != self.command);
        }
        result
    }

    fn resources(&self) -> Option<TreeResources> {
        let meter = self.meter.as_ref()?;
        let read = || meter.resources(self.cgroup.as_deref());
        match self.resources.get() {
            Some(resources) => Some(resources.clone()),
            None if self.has_ended.load(Ordering::Relaxed) => {
                Some(self.resources.get_or_init(read).clone())
            }
            None => Some(read()),
        }
    }

    fn release(self: Box<Self>) -> Option<ChildHandle> {
        self.supervisor.map(|supervisor| supervisor.guard_exit)
    }
}

/// Asks a supervisor to end its tree, and tells its guard that the groups of the tree are not needed any more.
pub(crate) fn release_groups(reports: &Reports) {
    reports.release();
}

impl Supervisor {
    /// Asks for the end of the tree. A guard that was stopped continues: it sees to it that the supervisor answers.
    fn request_end(&self) {
        if self.reports.try_request_end().is_err() {
            // Nobody is left to hear it; or this process is a fork of the host.
            return;
        }
        // Ignored: it has ended.
        let _ = self.guard.signal(Signal::CONT);
    }

    /// Waits a moment for the end of the guard, which ends last.
    pub(crate) fn wait_for_guard(&self, wait: &mut EndWait) {
        while let Some(limit) = wait.next() {
            if self.guard.wait_timeout(limit) {
                return;
            }
        }
    }

    /// Returns the number of killed processes, once it has been reported.
    fn final_killed_count(&self) -> Option<u32> {
        loop {
            match self.reports.take() {
                Ok(Some(SupervisorReport::TreeEnded(count))) => return Some(count),
                Ok(Some(SupervisorReport::EndedLast(..))) => return Some(0),
                Ok(Some(SupervisorReport::Nothing) | None) | Err(_) => return None,
                Ok(Some(_)) => {}
            }
        }
    }
}

// Tests of the messages and plans of slots: what one side writes, the other reads, and no content does harm.
#[cfg(test)]
mod message_tests {
    use proptest::prelude::*;

    use crate::process::nolibc::message::{PLAN_BYTES, Plan, Request, field, flag};

    proptest! {
        #[test]
        fn requests_round_trip(job: i64, bytes in 0..=PLAN_BYTES) {
            for request in [Request::Start { job, bytes }, Request::EndTree { job }] {
                prop_assert_eq!(Request::of_words(&request.to_words()), Some(request));
            }
        }

        #[test]
        fn other_words_are_no_request(kind in prop_oneof![Just(1_i64), any::<i64>()], job: i64, bytes: i64) {
            match Request::of_words(&[kind, job, bytes]) {
                Some(Request::Start { bytes, .. }) => prop_assert!(bytes <= PLAN_BYTES),
                Some(Request::EndTree { .. }) => prop_assert_eq!(kind, 2),
                None => prop_assert!(kind != 2),
            }
        }

        /// The supervisor reads a plan that another process may change at any time.
        #[test]
        fn any_words_are_read_within_their_memory(
            words in proptest::collection::vec(word(), 0..80),
            index in prop_oneof![0_usize..100, Just(usize::MAX), any::<usize>()],
        ) {
            let plan = Plan::new(&words, BASE);
            for list in [plan.array(index), plan.list(index, index, 1), plan.list(0, 1, 3)].into_iter().flatten() {
                prop_assert!(list.is_empty() || words.as_ptr_range().contains(&list.as_ptr()));
                prop_assert!(list.as_ptr_range().end <= words.as_ptr_range().end || list.is_empty());
            }
            let _ = (plan.has(flag::SEARCHES), plan.word(index));
        }
    }

    const BASE: u64 = 0x7f00_0000_0000;

    /// Returns a word that is often an address in the memory, or next to it, or a small number.
    fn word() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0_u64..90).prop_map(|place| BASE + place * 8),
            (0_u64..800).prop_map(|place| BASE - 40 + place),
            0_u64..20,
            any::<u64>(),
        ]
    }

    #[test]
    fn an_empty_plan_has_no_program() {
        assert!(Plan::new(&[], BASE).array(field::ARGV).is_none());
        assert!(Plan::new(&[0; field::COUNT], BASE).array(field::ARGV).is_none());
    }
}
