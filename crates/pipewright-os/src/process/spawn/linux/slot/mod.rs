//! Starts children in a slot, whose supervisor creates them.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the slot: its supervisor, and its current job |
//! | `launch.rs` | the start of the supervisor and its guard |
//! | `request.rs` | a plan as the supervisor reads it, and the handles that go with it |
//! | `plans.rs` | the memory of the plans |

mod launch;
mod plans;
mod request;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getgid, getuid};

use super::child::STOP_PENDING;
use super::contained::{can_supervise_any, cannot_supervise};
use super::trial::try_supervisor;
use super::{MOST_STOPS, SpawnError, Step};
use crate::base::generation::Generation;
use crate::process::child::{ChildHandle, Containment, linux as exit};
use crate::process::contain::linux::job::{self, Job, JobReporter, JobTree, SlotSupervisor};
use crate::process::contain::linux::message::Request;
use crate::process::contain::linux::report::{JobNotStarted, KILLED};
use crate::process::spawn::layout::Layout;
use crate::process::spawn::slot::{Slot, TreeSlot};
use crate::process::spawn::{BadInput, Plan, steps};
use launch::{SlotSupervision, launch};
use plans::Plans;
use request::{Handles, PlanWords};

pub(in crate::process::spawn) fn new_slot(reap: fn(ChildHandle)) -> Result<TreeSlot, SpawnError> {
    let contain_error = |error| SpawnError::new(Step::Contain, error);
    can_supervise_any().map_err(contain_error)?;
    try_supervisor().map_err(|error| contain_error(cannot_supervise(&error)))?;
    let slot = LinuxSlot { made_in: Generation::current(), reap, state: Mutex::default() };
    slot.lock().holder = Some(slot.new_holder()?);
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
    /// The number of the last request.
    number: i64,
}

/// The supervisor, and the memory for its plans.
#[derive(Debug)]
struct Holder {
    supervisor: Arc<SlotSupervisor>,
    plans: Plans,
    /// True if the commands have to ignore SIGCHLD.
    ignores_sigchld: bool,
    users: Users,
}

/// The users and groups of this process.
#[derive(Debug, PartialEq, Eq)]
struct Users([Uid; 2], [Gid; 2]);

impl Users {
    fn now() -> Users {
        Users([getuid(), geteuid()], [getgid(), getegid()])
    }
}

impl Slot for LinuxSlot {
    fn start(&self, plan: &Plan<'_>) -> Result<ChildHandle, SpawnError> {
        if !self.made_in.is_current() {
            return Err(SpawnError::bad(BadInput::SlotOfParent));
        }
        request::check_options(plan)?;
        let layout = Layout::new(plan)?;
        let handles = Handles::of(plan)?;
        let mut state = self.lock();
        state.end_last_job()?;
        let mut stops = 0;
        let mut may_renew = true;
        loop {
            state.number += 1;
            let number = state.number;
            let holder = self.usable_holder(&mut state)?;
            let words = PlanWords {
                plan,
                layout: &layout,
                may_retry: stops < MOST_STOPS,
                ignores_sigchld: holder.ignores_sigchld,
            };
            match holder.start(number, &words, &handles) {
                Ok((job, pidfd)) => return state.child(job, pidfd),
                Err(Failed::Start(error)) => return Err(error),
                Err(Failed::StopPending) => stops += 1,
                Err(Failed::NotReceived) if may_renew => {
                    state.holder = None;
                    may_renew = false;
                }
                Err(Failed::NotReceived) => {
                    state.holder = None;
                    return Err(SpawnError::new(Step::Contain, io::Error::other(KILLED)));
                }
                Err(Failed::Holder(error)) => {
                    state.holder = None;
                    return Err(error);
                }
            }
        }
    }

    fn containment(&self) -> Containment {
        Containment::Supervisor
    }
}

impl LinuxSlot {
    /// Returns the holder, or a new one if it is gone.
    fn usable_holder<'a>(&self, state: &'a mut State) -> Result<&'a mut Holder, SpawnError> {
        // A supervisor that was started before this process has given up its rights would keep them.
        let usable = state.holder.take().filter(|holder| holder.users == Users::now());
        let holder = match usable {
            Some(holder) => holder,
            None => self.new_holder()?,
        };
        Ok(state.holder.insert(holder))
    }

    fn new_holder(&self) -> Result<Holder, SpawnError> {
        let plans = Plans::new().map_err(|error| SpawnError::new(Step::Create, error))?;
        let users = Users::now();
        let SlotSupervision { supervisor, memory, ignores_sigchld } = launch(plans.as_fd())
            .map_err(|error| match error {
                SpawnError { step: Step::Contain, source } if source.raw_os_error().is_none() => {
                    SpawnError::new(Step::Contain, cannot_supervise(&source))
                }
                other => other,
            })?;
        let (made_in, reap) = (self.made_in, self.reap);
        let supervisor = Arc::new(SlotSupervisor { supervisor, made_in, reap });
        Ok(Holder { supervisor, plans: plans.at(memory), ignores_sigchld, users })
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
    /// Requests a start, and waits for its result.
    fn start(
        &mut self,
        number: i64,
        words: &PlanWords<'_>,
        handles: &Handles<'_>,
    ) -> Result<(Arc<Job>, Option<OwnedFd>), Failed> {
        let bytes = self.plans.write(words, handles).map_err(Failed::Start)?;
        let request = Request::Start { job: number, bytes };
        let reports = self.supervisor.reports();
        match handles.send(|fds| reports.request(request, fds)) {
            Ok(()) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(Failed::NotReceived),
            Err(error) => return Err(Failed::Start(handles.error(error))),
        }
        let started = job::started(&self.supervisor, number);
        self.plans.trim();
        started.map_err(|error| match error {
            JobNotStarted::Failed { errno: STOP_PENDING, .. } => Failed::StopPending,
            JobNotStarted::Failed { errno, step } => {
                let error = io::Error::from_raw_os_error(errno);
                Failed::Start(SpawnError::new(steps::step_of(step), error))
            }
            JobNotStarted::NotReceived => Failed::NotReceived,
            JobNotStarted::Killed => {
                Failed::Holder(SpawnError::new(Step::Contain, io::Error::other(KILLED)))
            }
            // The result is unknown, so the command must not run.
            JobNotStarted::Socket(error) => Failed::Holder(SpawnError::new(Step::Create, error)),
        })
    }
}

impl State {
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
        // Without a pidfd, signals would go by a number that the supervisor may have freed. The drop of the tree ends it.
        let Some(pidfd) = pidfd else {
            job.release();
            job.end();
            let error = io::Error::from_raw_os_error(libc::EMFILE);
            return Err(SpawnError::new(Step::Create, error));
        };
        let exit = exit::ChildHandle::of_small_parent(job.command(), pidfd)
            .with_reporter(Box::new(JobReporter(Arc::clone(&job))))
            .with_tree(Box::new(JobTree(job)));
        Ok(ChildHandle(exit))
    }
}
