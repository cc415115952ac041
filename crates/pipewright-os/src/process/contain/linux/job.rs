//! The tree of one command of a slot, and the reports about it.
//!
//! One socket has the reports of all commands of a slot, one after another. Only the current job reads it. Each job
//! keeps what has been reported about it, so that later calls do not read the reports of the next one.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{io, mem};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::limits::KeptGroups;
use super::report::{JobNotStarted, Reports, SupervisorReport};
use super::{Supervisor, release_groups};
use crate::base::generation::Generation;
use crate::process::child::linux::ExitReporter;
use crate::process::child::{ChildHandle, ContainedTree, Containment};
use crate::process::contain::EndWait;
use crate::process::limits::TreeResources;
use crate::process::member::Member;
use crate::process::nolibc::message::Request;
use crate::process::procfs::children_of;
use crate::process::status::Ended;
use crate::process::tree::{add_children, is_child_of};

/// The guard and the supervisor of a slot.
///
/// # Drop
/// Ends them, and with them every process of the slot.
#[derive(Debug)]
pub(crate) struct SlotSupervisor {
    pub(crate) supervisor: Supervisor,
    /// The process that started them. A fork of it must not end them.
    pub(crate) made_in: Generation,
    /// Reaps a process that has not ended yet.
    pub(crate) reap: fn(ChildHandle),
    /// True once it has been asked to end. The next start needs another one.
    is_ending: AtomicBool,
}

impl SlotSupervisor {
    pub(crate) fn new(
        supervisor: Supervisor,
        made_in: Generation,
        reap: fn(ChildHandle),
    ) -> SlotSupervisor {
        SlotSupervisor { supervisor, made_in, reap, is_ending: AtomicBool::new(false) }
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Ends it, and the tree that it holds. Its guard sees that too, and continues or replaces it if it does not
    /// answer: a command may stop its own supervisor.
    pub(crate) fn end(&self) {
        if !self.made_in.is_current() {
            return;
        }
        self.is_ending.store(true, Ordering::Relaxed);
        self.supervisor.request_end();
    }

    pub(crate) fn reports(&self) -> &Reports {
        &self.supervisor.reports
    }

    /// Waits a moment for a message or the end of all. Returns false if none has come.
    pub(crate) fn has_message_soon(&self) -> bool {
        let mut wait = EndWait::new();
        while let Some(limit) = wait.next() {
            if self.has_message_within(limit) {
                return true;
            }
        }
        false
    }

    /// Waits for a message. A signal may cut the wait short.
    pub(crate) fn has_message_within(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).ok();
        let mut polled = [PollFd::new(self.reports(), PollFlags::IN)];
        rustix::event::poll(&mut polled, limit.as_ref()).is_ok_and(|ready| ready > 0)
    }
}

impl Drop for SlotSupervisor {
    fn drop(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        release_groups(&self.supervisor.reports);
        self.supervisor.wait_for_guard(&mut EndWait::new());
        // An error means that other code has reaped it.
        if let Ok(None) = self.supervisor.guard_exit.try_wait() {
            (self.reap)(mem::take(&mut self.supervisor.guard_exit));
        }
    }
}

/// One command of a slot, and its tree.
#[derive(Debug)]
pub(crate) struct Job {
    supervisor: Arc<SlotSupervisor>,
    /// The number of the job in requests.
    number: i64,
    /// The number of the command's process.
    command: i32,
    reported: Mutex<Reported>,
    /// True once nobody can wait for the command any more.
    is_released: AtomicBool,
    /// The groups of its limits, if it has limits.
    groups: Option<Arc<dyn KeptGroups>>,
    /// The resources, once every process has gone.
    resources: OnceLock<TreeResources>,
}

/// The reports about a job so far.
#[derive(Debug, Default)]
struct Reported {
    ended: Option<Ended>,
    has_stopped: bool,
    /// The number of killed processes, once no process is left.
    killed: Option<u32>,
}

impl Job {
    pub(crate) fn new(
        supervisor: Arc<SlotSupervisor>,
        number: i64,
        command: i32,
        groups: Option<Arc<dyn KeptGroups>>,
    ) -> Job {
        let (reported, is_released) = (Mutex::default(), AtomicBool::new(false));
        let resources = OnceLock::new();
        Job { supervisor, number, command, reported, is_released, groups, resources }
    }

    /// Returns the number of the command's process.
    pub(crate) fn command(&self) -> i32 {
        self.command
    }

    /// Returns true once nobody can wait for the command any more.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }

    /// Records that nobody can wait for the command any more.
    pub(crate) fn release(&self) {
        self.is_released.store(true, Ordering::Release);
    }

    /// Asks the supervisor to kill what is left.
    pub(crate) fn request_end(&self) {
        let sent = self.supervisor.reports().request(Request::EndTree { job: self.number }, &[]);
        if sent.is_err() {
            // It does not read, or it has ended, and the guard kills the tree.
            self.supervisor.end();
        }
    }

    /// Kills what is left, and waits a moment for its end. Returns true if no process is left.
    pub(crate) fn end(&self) -> bool {
        if self.take_reports() {
            return true;
        }
        self.request_end();
        if self.ends_within(&mut EndWait::new()) {
            return true;
        }
        // The supervisor may be stopped: now the guard continues or replaces it. The next start makes another.
        self.supervisor.end();
        self.ends_within(&mut EndWait::new())
    }

    /// Returns true if no process is left. For a job that nobody waits for.
    pub(crate) fn is_over(&self) -> bool {
        self.take_reports()
    }

    fn ends_within(&self, wait: &mut EndWait) -> bool {
        while let Some(limit) = wait.next() {
            self.supervisor.has_message_within(limit);
            if self.take_reports() {
                return true;
            }
        }
        false
    }

    /// Takes the reports so far. Returns true if no process of the tree is left.
    ///
    /// Called only when nobody waits for the command: a report that is gone wakes no other waiter.
    fn take_reports(&self) -> bool {
        let mut reported = self.lock();
        while reported.killed.is_none() {
            match self.supervisor.reports().take() {
                Ok(Some(report)) => self.record(&mut reported, report),
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }

    fn record(&self, reported: &mut Reported, report: SupervisorReport) {
        match report {
            SupervisorReport::Ended(pid, ended) if pid == self.command => {
                reported.ended = Some(ended);
            }
            SupervisorReport::EndedLast(pid, ended) => {
                if pid == self.command {
                    reported.ended = Some(ended);
                }
                reported.killed = Some(0);
            }
            SupervisorReport::CommandStopped => reported.has_stopped = true,
            SupervisorReport::TreeEnded(killed) => reported.killed = Some(killed),
            // Both processes that could have reported have ended, and the tree with them.
            SupervisorReport::Nothing => reported.killed = Some(0),
            // The end of another process, whose supervisor was killed; or a message that never comes here.
            SupervisorReport::Ended(..) | SupervisorReport::Started | SupervisorReport::CanWork => {
            }
        }
    }

    /// Returns the end of the command. Leaves its report in the socket, so that it wakes other waiters too.
    fn end_of_command(&self) -> io::Result<Option<Ended>> {
        let mut reported = self.lock();
        loop {
            if reported.ended.is_some() {
                return Ok(reported.ended);
            }
            let lost = || io::Error::from_raw_os_error(libc::ECHILD);
            if reported.killed.is_some() {
                return Err(lost());
            }
            match self.supervisor.reports().peek()? {
                None => return Ok(None),
                Some(
                    SupervisorReport::Ended(pid, ended) | SupervisorReport::EndedLast(pid, ended),
                ) if pid == self.command => return Ok(Some(ended)),
                Some(SupervisorReport::TreeEnded(_) | SupervisorReport::Nothing) => {
                    return Err(lost());
                }
                Some(report) => {
                    self.record(&mut reported, report);
                    self.supervisor.reports().take().map(drop)?;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reported> {
        // Each field is one assignment.
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the result of a start, and returns the job with a pidfd of its command.
///
/// # Errors
/// The command was not started, or no process of it is left.
pub(crate) fn started(
    supervisor: &Arc<SlotSupervisor>,
    number: i64,
    groups: Option<Arc<dyn KeptGroups>>,
) -> Result<(Arc<Job>, Option<OwnedFd>), JobNotStarted> {
    let started = supervisor.reports().job_started(number)?;
    let job = Job::new(Arc::clone(supervisor), number, started.pid, groups);
    Ok((Arc::new(job), started.pidfd))
}

/// The source of the exit status of a slot's command.
#[derive(Debug)]
pub(crate) struct JobReporter(pub(crate) Arc<Job>);

impl ExitReporter for JobReporter {
    fn end(&self) -> io::Result<Option<Ended>> {
        self.0.end_of_command()
    }

    fn wait_for_more(&self) -> io::Result<()> {
        if self.0.lock().killed.is_none() {
            self.0.supervisor.reports().wait()?;
        }
        Ok(())
    }

    fn take_stop(&self) -> bool {
        mem::take(&mut self.0.lock().has_stopped)
    }

    fn pollable(&self) -> BorrowedFd<'_> {
        self.0.supervisor.reports().as_fd()
    }
}

/// The tree of a slot's command.
///
/// # Drop
/// Asks the supervisor to end the tree. The slot's next start waits for that.
#[derive(Debug)]
pub(crate) struct JobTree(pub(crate) Arc<Job>);

impl JobTree {
    fn supervisor(&self) -> &Supervisor {
        &self.0.supervisor.supervisor
    }

    /// Returns true if the supervisor has the number that it was started with.
    fn supervisor_runs(&self) -> io::Result<bool> {
        let Supervisor { supervisor, guard, .. } = self.supervisor();
        // A child of the guard keeps its number until the guard has reaped it.
        is_child_of(*supervisor, guard)
    }
}

impl ContainedTree for JobTree {
    fn containment(&self) -> Containment {
        Containment::Supervisor
    }

    fn kill(&self) {
        // Not a request for the tree alone: nobody would see in time that it is not answered.
        self.0.supervisor.end();
    }

    fn is_alive(&self) -> bool {
        if self.0.lock().killed.is_some() {
            return false;
        }
        // A report of the end must stay in the socket, where it wakes others that wait for the command.
        match self.0.supervisor.reports().peek() {
            Ok(Some(
                SupervisorReport::EndedLast(..)
                | SupervisorReport::TreeEnded(_)
                | SupervisorReport::Nothing,
            )) => false,
            _ => {
                let is_empty =
                    children_of(self.supervisor().supervisor).is_ok_and(|them| them.is_empty());
                // Without the supervisor, the guard has the processes.
                let is_over = is_empty && self.supervisor_runs().unwrap_or(false);
                !is_over && self.supervisor().guard.is_alive()
            }
        }
    }

    fn last(&self) -> Option<&Member> {
        None
    }

    fn end(&self) -> u32 {
        self.0.end();
        self.0.lock().killed.unwrap_or(0)
    }

    fn collect(&self, members: &mut Vec<Member>) -> io::Result<()> {
        let supervisor = self.supervisor().supervisor;
        let result = add_children(supervisor, || self.supervisor_runs(), members);
        members.retain(|member| member.pid() != self.0.command as u32);
        result
    }

    fn resources(&self) -> Option<TreeResources> {
        let groups = self.0.groups.as_ref()?;
        if self.0.lock().killed.is_none() {
            return Some(groups.resources());
        }
        Some(self.0.resources.get_or_init(|| groups.last_resources()).clone())
    }

    fn release(self: Box<Self>) -> Option<ChildHandle> {
        None
    }
}

impl Drop for JobTree {
    fn drop(&mut self) {
        if !self.0.supervisor.made_in.is_current() {
            return;
        }
        if self.0.lock().killed.is_none() {
            self.0.request_end();
        }
        self.0.release();
    }
}
