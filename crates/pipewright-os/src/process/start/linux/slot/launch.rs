//! Starts the guard and the supervisor of a slot.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

use super::super::supervisor_program::{NONE, PLANS, SupervisorProgram};
use super::{SpawnError, Step};
use crate::base::signal::AllBlocked;
use crate::process::contain::linux::image::image;
use crate::process::contain::linux::limits::KeptGroups;
use crate::process::contain::linux::report::{NotStarted, Ready};
use crate::process::contain::linux::{Supervisor, release_groups};
use crate::process::room::is_lack;
use crate::process::start;
use crate::process::start::linux::contained::{
    StartContext, cannot_contain, check_handle_limit, create_guard, hold_guard, no_image,
    open_host_handles, take_stack,
};

/// The supervisor of a slot, which has no command yet.
pub(super) struct SlotSupervision {
    pub(super) supervisor: Supervisor,
    /// The address of the plans in the supervisor.
    pub(super) memory: u64,
    /// True if the commands have to ignore SIGCHLD.
    pub(super) ignores_sigchld: bool,
}

/// Starts the guard and the supervisor of a slot. The program has to be proven. The guard removes the groups if this process is
/// killed.
pub(super) fn launch(
    plans: BorrowedFd<'_>,
    groups: Option<&dyn KeptGroups>,
) -> Result<SlotSupervision, SpawnError> {
    let create_error = |error| SpawnError::new(Step::Create, error);
    let image = image().map_err(no_image)?;
    check_handle_limit().map_err(create_error)?;
    // Dropped after the stacks are back in their pool.
    let _under_way = start::begin_start();
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
        (Err(NotStarted::Supervisor(error) | NotStarted::Command(error)), _)
            if !is_lack(&error) =>
        {
            cannot_contain(error)
        }
        (Err(NotStarted::Supervisor(error) | NotStarted::Command(error)), _) => create_error(error),
        (Ok(_), None) => create_error(std::io::ErrorKind::Unsupported.into()),
    };
    release_groups(&reports);
    // Ignored: it has been reaped elsewhere.
    let _ = guard_exit.wait();
    Err(failed)
}
