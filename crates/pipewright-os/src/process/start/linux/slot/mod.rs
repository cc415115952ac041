//! Starts children in a slot, whose supervisor creates them: the slot with its supervisor and its current job, a start
//! that the supervisor has been asked for, and the start of the supervisor itself.

mod request;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::contained::{
    StartContext, can_supervise_any, cannot_contain, cannot_supervise, check_handle_limit,
    create_guard, hold_guard, no_image, not_supervised, open_host_handles, take_stack,
};
use super::spawner_thread::Rights;
use super::supervisor_program::{NONE, PLANS, SupervisorProgram, try_supervisor};
use super::{MOST_STOPS, SpawnError, Step};
use crate::base::error::is_lack;
use crate::base::generation::Generation;
use crate::base::signal::AllBlocked;
use crate::base::wake::{EventSource, WaitEvent};
use crate::process::child::{ChildHandle, Containment, linux as exit};
use crate::process::contain::linux::image::image;
use crate::process::contain::linux::job::{self, Job, JobReporter, JobTree, SlotSupervisor};
use crate::process::contain::linux::limits::{GroupNames, KeptGroups};
use crate::process::contain::linux::report::{JobNotStarted, KILLED, Ready};
use crate::process::contain::linux::{Supervisor, release_groups};
use crate::process::nolibc::message::Request;
use crate::process::nolibc::steps::STOP_PENDING;
use crate::process::start::layout::Layout;
use crate::process::start::slot::{Begun, Requested, RequestedStart, Slot, TreeSlot};
use crate::process::start::{BadInput, Plan, begin_start, layout};
use request::{Handles, PlanWords, Plans};

pub(in crate::process::start) fn new_slot(reap: fn(ChildHandle)) -> Result<TreeSlot, SpawnError> {
    can_supervise_any()?;
    try_supervisor().map_err(not_supervised)?;
    let slot = LinuxSlot { made_in: Generation::current(), reap, state: Mutex::default() };
    slot.lock().holder = Some(slot.new_holder(None)?);
    Ok(TreeSlot(Arc::new(slot)))
}

#[derive(Debug)]
struct LinuxSlot {
    /// The process that may use the slot: not a fork of it.
    made_in: Generation,
    reap: fn(ChildHandle),
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` if it is gone; then the next start makes another one.
    holder: Option<Holder>,
    /// The last job.
    job: Option<Arc<Job>>,
    /// The groups of the last job with limits.
    groups: Option<Arc<dyn KeptGroups>>,
    /// The number of the last request.
    number: i64,
    /// True from the request of a start until its result has been received.
    is_starting: bool,
}

/// The supervisor, and the memory for its plans.
#[derive(Debug)]
struct Holder {
    supervisor: Arc<SlotSupervisor>,
    plans: Plans,
    /// True if the commands have to ignore SIGCHLD.
    ignores_sigchld: bool,
    /// The rights of the thread that made it.
    rights: Rights,
    /// The groups that its guard removes if this process is killed.
    groups: GroupNames,
}

impl Slot for LinuxSlot {
    fn begin(self: Arc<Self>, plan: &Plan<'_>) -> Result<Begun, SpawnError> {
        if !self.made_in.is_current() {
            return Err(SpawnError::bad(BadInput::SlotOfParent));
        }
        let mut attempt = Attempt::default();
        let mut state = self.lock();
        if state.is_starting {
            return Err(SpawnError::bad(BadInput::SlotInUse));
        }
        request::check_options(plan)?;
        attempt.has_limits = plan.contain.is_some();
        state.end_last_job()?;
        let supervisor = self.request(&mut state, plan, &mut attempt)?;
        state.is_starting = true;
        drop(state);
        let start = SlotStart::new(self, supervisor, attempt);
        Ok(Begun::Requested(RequestedStart(Box::new(start))))
    }

    fn containment(&self) -> Containment {
        Containment::Supervisor
    }

    fn is_free(&self) -> bool {
        if !self.made_in.is_current() {
            return false;
        }
        let state = self.lock();
        let is_over = |job: &Arc<Job>| job.is_released() && job.is_over();
        !state.is_starting && state.job.as_ref().is_none_or(is_over)
    }
}

impl LinuxSlot {
    /// Requests a start.
    fn request(
        &self,
        state: &mut State,
        plan: &Plan<'_>,
        attempt: &mut Attempt,
    ) -> Result<Arc<SlotSupervisor>, SpawnError> {
        loop {
            state.number += 1;
            attempt.number = state.number;
            state.drop_unusable_holder();
            let groups = state.groups_for(plan)?;
            let request = StartRequest::of(plan, groups.as_deref())?;
            let holder = self.usable_holder(state, groups.as_deref())?;
            match holder.request(&request, attempt) {
                Ok(()) => return Ok(Arc::clone(&holder.supervisor)),
                Err(failed) => state.may_try_again(failed, attempt)?,
            }
        }
    }

    /// Waits for the result of a start, and tries again if the supervisor was killed before it.
    fn result(
        &self,
        state: &mut State,
        plan: &Plan<'_>,
        mut supervisor: Arc<SlotSupervisor>,
        mut attempt: Attempt,
    ) -> Result<ChildHandle, SpawnError> {
        loop {
            match state.answer(&supervisor, &attempt) {
                Ok((job, pidfd)) => return state.child(job, pidfd),
                Err(failed) => state.may_try_again(failed, &mut attempt)?,
            }
            supervisor = self.request(state, plan, &mut attempt)?;
        }
    }

    /// Returns the holder, or a new one if it is gone.
    fn usable_holder<'a>(
        &self,
        state: &'a mut State,
        groups: Option<&dyn KeptGroups>,
    ) -> Result<&'a mut Holder, SpawnError> {
        let knows = |holder: &Holder| groups.is_none_or(|groups| holder.groups == groups.names());
        let holder = match state.holder.take().filter(knows) {
            Some(holder) => holder,
            None => self.new_holder(groups)?,
        };
        Ok(state.holder.insert(holder))
    }

    fn new_holder(&self, groups: Option<&dyn KeptGroups>) -> Result<Holder, SpawnError> {
        let plans = Plans::new().map_err(|error| SpawnError::new(Step::Create, error))?;
        let rights = Rights::here();
        let SlotSupervision { supervisor, memory, ignores_sigchld } = launch(plans.as_fd(), groups)
            .map_err(|error| match error {
                SpawnError { step: Step::Contain, source } if source.raw_os_error().is_none() => {
                    SpawnError::new(Step::Contain, cannot_supervise(&source))
                }
                other => other,
            })?;
        let (made_in, reap) = (self.made_in, self.reap);
        let supervisor = Arc::new(SlotSupervisor::new(supervisor, made_in, reap));
        let groups = groups.map(KeptGroups::names).unwrap_or_default();
        Ok(Holder { supervisor, plans: plans.at(memory), ignores_sigchld, rights, groups })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each field is one assignment, and a lost holder is replaced.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why a request has started nothing.
enum Failed {
    /// The start itself failed.
    Start(SpawnError),
    /// A signal that stops is pending. The next attempt comes after the stop.
    StopPending,
    /// The supervisor had ended before. The command has not begun, so another attempt does not run it twice.
    NotReceived,
    /// The holder is gone, or in an unknown state. The command may have run.
    Holder(SpawnError),
}

impl Holder {
    /// Requests a start.
    fn request(&mut self, request: &StartRequest<'_>, attempt: &Attempt) -> Result<(), Failed> {
        let StartRequest { plan, layout, handles } = request;
        let words = PlanWords {
            plan,
            layout,
            may_retry: attempt.stops < MOST_STOPS,
            ignores_sigchld: self.ignores_sigchld,
        };
        let bytes = self.plans.write(&words, handles).map_err(Failed::Start)?;
        let reports = self.supervisor.reports();
        let request = Request::Start { job: attempt.number, bytes };
        match handles.send(|fds| reports.request(request, fds)) {
            Ok(()) => Ok(()),
            // It has ended, or it does not read.
            Err(Errno::PIPE | Errno::CONNRESET | Errno::AGAIN) => Err(Failed::NotReceived),
            Err(error) => Err(Failed::Start(handles.error(error))),
        }
    }
}

impl From<JobNotStarted> for Failed {
    fn from(error: JobNotStarted) -> Failed {
        match error {
            JobNotStarted::Failed { errno: STOP_PENDING, .. } => Failed::StopPending,
            JobNotStarted::Failed { errno, step } => {
                let error = io::Error::from_raw_os_error(errno);
                Failed::Start(SpawnError::new(layout::step_of(step), error))
            }
            JobNotStarted::NotReceived => Failed::NotReceived,
            JobNotStarted::Killed => Failed::Holder(SpawnError::unknown(io::Error::other(KILLED))),
            // So the command must not run on.
            JobNotStarted::Socket(error) => Failed::Holder(SpawnError::unknown(error)),
        }
    }
}

impl State {
    /// Gives up a holder that is gone, or that was started before this process has given up its rights: it would keep
    /// them. Its guard removes the groups.
    fn drop_unusable_holder(&mut self) {
        let rights = Rights::here();
        let is_usable = |holder: &Holder| holder.rights == rights && !holder.supervisor.is_ending();
        if !self.holder.as_ref().is_some_and(is_usable) {
            self.holder = None;
            self.groups = None;
        }
    }

    /// Makes the groups of a plan's limits, if it has limits.
    fn groups_for(&mut self, plan: &Plan<'_>) -> Result<Option<Arc<dyn KeptGroups>>, SpawnError> {
        let Some(make) = plan.contain.and_then(|contain| contain.slot_limits) else {
            return Ok(None);
        };
        let limits = plan.limits.copied().unwrap_or_default();
        let groups = make(limits, self.groups.take())?;
        self.groups = Some(Arc::clone(&groups));
        Ok(Some(groups))
    }

    /// Returns the groups of a start that has begun, if it has limits.
    fn groups_of(&self, attempt: &Attempt) -> Option<Arc<dyn KeptGroups>> {
        self.groups.clone().filter(|_| attempt.has_limits)
    }

    /// Waits for the result of a start.
    fn answer(
        &mut self,
        supervisor: &Arc<SlotSupervisor>,
        attempt: &Attempt,
    ) -> Result<(Arc<Job>, Option<OwnedFd>), Failed> {
        let started = job::started(supervisor, attempt.number, self.groups_of(attempt));
        if let Some(holder) = &mut self.holder {
            holder.plans.trim();
        }
        Ok(started?)
    }

    /// Returns the error of a start, or nothing if it may be tried again.
    fn may_try_again(&mut self, failed: Failed, attempt: &mut Attempt) -> Result<(), SpawnError> {
        match failed {
            Failed::Start(error) => Err(error),
            Failed::StopPending if !attempt.is_ended => {
                attempt.stops += 1;
                Ok(())
            }
            Failed::NotReceived if !attempt.has_renewed && !attempt.is_ended => {
                self.holder = None;
                attempt.has_renewed = true;
                Ok(())
            }
            Failed::StopPending | Failed::NotReceived => {
                self.holder = None;
                Err(SpawnError::new(Step::Contain, io::Error::other(KILLED)))
            }
            Failed::Holder(error) => {
                self.holder = None;
                Err(error)
            }
        }
    }

    /// Makes sure that no process of the last job is left.
    fn end_last_job(&mut self) -> Result<(), SpawnError> {
        match &self.job {
            Some(job) if !job.is_released() || !job.end() => {
                Err(SpawnError::bad(BadInput::SlotInUse))
            }
            _ => {
                self.job = None;
                Ok(())
            }
        }
    }

    /// Makes the handle of a job that has been started.
    fn child(&mut self, job: Arc<Job>, pidfd: Option<OwnedFd>) -> Result<ChildHandle, SpawnError> {
        self.job = Some(Arc::clone(&job));
        // Without a pidfd, signals would go by a number that the supervisor may have freed. The drop of the tree ends
        // it.
        let Some(pidfd) = pidfd else {
            job.release();
            job.end();
            return Err(SpawnError::unknown(io::Error::from_raw_os_error(libc::EMFILE)));
        };
        let exit = exit::ChildHandle::of_small_parent(job.command(), pidfd)
            .with_reporter(Box::new(JobReporter(Arc::clone(&job))))
            .with_tree(Box::new(JobTree(job)));
        Ok(ChildHandle(exit))
    }
}

/// The attempts of one start.
#[derive(Debug, Default)]
struct Attempt {
    /// The number of the last request.
    number: i64,
    /// The number of attempts that a pending stop has ended.
    stops: usize,
    /// True if the supervisor was gone once. Another one that is gone is an error.
    has_renewed: bool,
    /// True if the command joins the slot's groups.
    has_limits: bool,
    /// True if the supervisor was asked to end: nothing is tried again.
    is_ended: bool,
}

/// The facts of a start that a request has.
struct StartRequest<'a> {
    plan: &'a Plan<'a>,
    layout: Layout,
    handles: Handles<'a>,
}

impl<'a> StartRequest<'a> {
    fn of(
        plan: &'a Plan<'a>,
        groups: Option<&'a dyn KeptGroups>,
    ) -> Result<StartRequest<'a>, SpawnError> {
        Ok(StartRequest { plan, layout: Layout::new(plan)?, handles: Handles::of(plan, groups)? })
    }
}

/// A start that the supervisor has been asked for.
struct SlotStart {
    slot: Arc<LinuxSlot>,
    supervisor: Arc<SlotSupervisor>,
    /// `None` once the result has been received.
    attempt: Option<Attempt>,
}

impl SlotStart {
    fn new(slot: Arc<LinuxSlot>, supervisor: Arc<SlotSupervisor>, attempt: Attempt) -> SlotStart {
        SlotStart { slot, supervisor, attempt: Some(attempt) }
    }
}

impl Requested for SlotStart {
    fn finish(mut self: Box<Self>, plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
        if !self.slot.made_in.is_current() {
            return Err(SpawnError::bad(BadInput::SlotOfParent));
        }
        let attempt = self.attempt.take().unwrap_or_default();
        let mut state = self.slot.lock();
        state.is_starting = false;
        self.slot.result(&mut state, plan, Arc::clone(&self.supervisor), attempt)
    }

    fn end(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.is_ended = true;
            self.supervisor.end();
        }
    }
}

impl SlotStart {
    /// Waits a moment for the result of a start that is not wanted any more. If there is none, ends the supervisor, and
    /// waits once more. Returns false if there is still none: then the kernel cannot end the child now.
    fn has_result_soon(&self, attempt: &Attempt) -> bool {
        let supervisor = &self.supervisor;
        if attempt.is_ended {
            return supervisor.has_message_within(Duration::ZERO);
        }
        supervisor.has_message_soon() || {
            supervisor.end();
            // The first second is that of the supervisor, then its guard kills it.
            supervisor.has_message_soon() || supervisor.has_message_soon()
        }
    }
}

impl WaitEvent for SlotStart {
    fn source(&self) -> EventSource<'_> {
        EventSource::Readable(self.supervisor.reports().as_fd())
    }

    fn has_happened(&self) -> bool {
        // Its source can be polled.
        false
    }
}

impl Drop for SlotStart {
    fn drop(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        if !self.slot.made_in.is_current() {
            return;
        }
        let mut state = self.slot.lock();
        state.is_starting = false;
        if !self.has_result_soon(&attempt) {
            state.holder = None;
            return;
        }
        match state.answer(&self.supervisor, &attempt) {
            // Its drop ends the tree.
            Ok((job, pidfd)) => drop(state.child(job, pidfd)),
            Err(Failed::Start(_) | Failed::StopPending) => {}
            Err(Failed::NotReceived | Failed::Holder(_)) => state.holder = None,
        }
    }
}

/// The supervisor of a slot, which has no command yet.
struct SlotSupervision {
    supervisor: Supervisor,
    /// The address of the plans in the supervisor.
    memory: u64,
    /// True if the commands have to ignore SIGCHLD.
    ignores_sigchld: bool,
}

/// Starts the guard and the supervisor of a slot. The program has to be proven. The guard removes the groups if this
/// process is killed.
fn launch(
    plans: BorrowedFd<'_>,
    groups: Option<&dyn KeptGroups>,
) -> Result<SlotSupervision, SpawnError> {
    let create_error = |error| SpawnError::new(Step::Create, error);
    let image = image().map_err(no_image)?;
    check_handle_limit().map_err(create_error)?;
    // Dropped after the stacks are back in their pool.
    let _under_way = begin_start();
    let [for_guard, for_supervisor] = [take_stack()?, take_stack()?];
    let (reports, theirs, host_pidfd) = open_host_handles(false).map_err(create_error)?;
    let cgroup = groups.and_then(KeptGroups::cgroup);
    let paths = groups.map(|groups| groups.names().paths);
    let mut program =
        SupervisorProgram::new(image, theirs.as_fd(), host_pidfd.as_fd(), cgroup, paths.as_deref());
    program.handles[PLANS] = plans.as_raw_fd();
    let context = StartContext {
        setup: None,
        stacks: [&for_supervisor, &for_supervisor],
        program,
        guard_pidfd: AtomicI32::new(NONE),
        proof: AtomicI32::new(NONE),
        is_proven: AtomicBool::new(true),
        ignores_sigchld: AtomicBool::new(false),
    };
    // Until both have left this process's memory, as above.
    let _blocked = AllBlocked::new();
    let (guard, guard_pidfd) = create_guard(&context, &for_guard, theirs, host_pidfd)?;
    let ready = reports.ready();
    let (guard, guard_exit) = hold_guard(guard, guard_pidfd);
    let failed = match (ready, guard) {
        (Ok(Ready { supervisor, memory }), Some(guard)) => {
            let reports = Arc::new(reports);
            return Ok(SlotSupervision {
                supervisor: Supervisor { reports, supervisor, guard, guard_exit },
                memory,
                ignores_sigchld: context.ignores_sigchld.load(Relaxed),
            });
        }
        // No command was asked for.
        (Err(error), _) => match error.into_source() {
            error if is_lack(&error) => create_error(error),
            error => cannot_contain(error),
        },
        (Ok(_), None) => create_error(std::io::ErrorKind::Unsupported.into()),
    };
    release_groups(&reports);
    // Ignored: it has been reaped elsewhere.
    let _ = guard_exit.wait();
    Err(failed)
}
