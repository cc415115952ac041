//! Starts a child whose tree is contained: in a cgroup, below a supervisor, or in a group.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use super::child::ChildSetup;
use super::{
    Group, Lists, Plan, SpawnError, Step, child_setup, clone, dumpable, start, start_uncontained,
    supervised,
};
use crate::process::child::{ChildHandle, linux as exit};
use crate::process::contain::linux::cgroup::{self, Cgroup};
use crate::process::contain::linux::image::image;
use crate::process::contain::linux::reporter::CommandReporter;
use crate::process::contain::linux::{LinuxTree, TreeMeter};
use crate::process::pidfd::pidfds_are_refused;
use crate::process::room::{is_lack, is_lack_of_room};
use crate::process::spawn::UnixOptions;
use crate::process::spawn::layout::Layout;

/// Starts a contained child. Tries the best way first: a cgroup, and a supervisor too if the tree has to
/// end with this process; a supervisor; a process group.
pub(crate) fn start_contained(
    plan: &Plan<'_>,
    ends_with_parent: bool,
) -> Result<ChildHandle, SpawnError> {
    let layout = &Layout::new(plan)?;
    let lists = &Lists::of(plan)?;
    if ends_with_parent {
        // A process group is not enough.
        can_supervise(plan)?;
    }
    let cgroup = Cgroup::new().map_err(|error| SpawnError::new(Step::Create, error))?;
    if let Some(cgroup) = cgroup {
        match start_held(plan, layout, lists, cgroup.into(), ends_with_parent) {
            Err(error) if cgroup_errno(&error).is_some() => {
                if cgroup_errno(&error).is_some_and(cgroup::is_permanent) {
                    cgroup::disable();
                }
            }
            done => {
                // The child runs meanwhile, so this delays nothing.
                cgroup::remove_stale();
                return done;
            }
        }
    }
    let lives_on = !ends_with_parent;
    let supervised = can_supervise(plan)
        .and_then(|()| start_supervised(plan, layout, lists, TreeHolder::default(), lives_on));
    match supervised {
        Err(error) if error.step == Step::Contain && !ends_with_parent => {
            start_in_group(plan, lists)
        }
        done => done,
    }
}

/// The groups that hold a tree, beside a supervisor.
#[derive(Default)]
pub(super) struct TreeHolder {
    /// The cgroup that contains the tree.
    pub(super) cgroup: Option<Cgroup>,
    /// The files by which the child joins the groups of its limits, if the cgroup does not hold the limits.
    pub(super) limit_procs: Vec<OwnedFd>,
    /// The groups of its limits, and their figures.
    pub(super) meter: Option<Box<dyn TreeMeter>>,
}

impl From<Cgroup> for TreeHolder {
    fn from(cgroup: Cgroup) -> TreeHolder {
        TreeHolder { cgroup: Some(cgroup), ..TreeHolder::default() }
    }
}

/// Starts a child that a cgroup holds, and also a supervisor if the tree has to end with this process.
pub(super) fn start_held(
    plan: &Plan<'_>,
    layout: &Layout,
    lists: &Lists,
    holder: TreeHolder,
    ends_with_parent: bool,
) -> Result<ChildHandle, SpawnError> {
    if ends_with_parent || holder.cgroup.is_none() {
        return start_supervised(plan, layout, lists, holder, false);
    }
    let TreeHolder { cgroup, limit_procs, meter } = holder;
    let groups: Vec<RawFd> = limit_procs.iter().map(AsRawFd::as_raw_fd).collect();
    // A forked child joins by the file.
    let is_born_there = clone::is_born_in_cgroup() && plan.unix.pre_exec.is_empty();
    let mut procs = open_procs(cgroup.as_ref().filter(|_| !is_born_there))?;
    let exit = loop {
        let setup = setup_in(plan, layout, lists, cgroup.as_ref(), procs.as_ref(), &groups);
        match start(&setup, start_uncontained) {
            Err(error) if error.source.raw_os_error() == Some(clone::NOT_BORN_IN_CGROUP) => {
                procs = open_procs(cgroup.as_ref())?;
            }
            done => break done?,
        }
    };
    let tree = LinuxTree::new(cgroup, None, exit.pid()).with_meter(meter);
    Ok(ChildHandle(exit.0.with_tree(Box::new(tree))))
}

fn open_procs(cgroup: Option<&Cgroup>) -> Result<Option<OwnedFd>, SpawnError> {
    let procs = cgroup.map(Cgroup::procs).transpose();
    procs.map_err(|error| SpawnError::new(Step::Contain, error))
}

fn setup_in<'a>(
    plan: &'a Plan<'a>,
    layout: &'a Layout,
    lists: &'a Lists,
    cgroup: Option<&Cgroup>,
    procs: Option<&OwnedFd>,
    groups: &'a [RawFd],
) -> ChildSetup<'a> {
    let mut setup = child_setup(plan, layout, lists);
    setup.cgroup = cgroup.map(|cgroup| cgroup.dir().as_raw_fd());
    setup.cgroup_procs = procs.map(AsRawFd::as_raw_fd);
    setup.steps.groups = groups;
    setup
}

fn start_supervised(
    plan: &Plan<'_>,
    layout: &Layout,
    lists: &Lists,
    holder: TreeHolder,
    lives_on: bool,
) -> Result<ChildHandle, SpawnError> {
    let TreeHolder { cgroup, limit_procs, meter } = holder;
    let groups: Vec<RawFd> = limit_procs.iter().map(AsRawFd::as_raw_fd).collect();
    let procs = open_procs(cgroup.as_ref())?;
    let mut setup = setup_in(plan, layout, lists, cgroup.as_ref(), procs.as_ref(), &groups);
    // The supervisor is its parent, and makes sure of that.
    setup.parent_pid = 0;
    let _dumpable = setup.changes_identity().then(dumpable::DumpableGuard::new);
    let paths = meter.as_ref().map(|meter| meter.group_paths());
    let child = start(&setup, |setup| {
        supervised::start(setup, cgroup.as_ref(), paths.as_deref(), lives_on)
    });
    let child = child.map_err(|error| match error {
        SpawnError { step: Step::Contain, source, .. } if source.raw_os_error().is_none() => {
            SpawnError::new(Step::Contain, cannot_supervise(&source))
        }
        other => other,
    })?;
    exit::preload_peak_memory();
    let reporter = CommandReporter::new(child.supervisor.reports.clone(), child.pid);
    let tree = LinuxTree::new(cgroup, Some(child.supervisor), child.pid as u32).with_meter(meter);
    Ok(ChildHandle(
        exit::ChildHandle::new(child.pid, child.pidfd)
            .with_reporter(Box::new(reporter))
            .with_tree(Box::new(tree)),
    ))
}

fn start_in_group(plan: &Plan<'_>, lists: &Lists) -> Result<ChildHandle, SpawnError> {
    let group = match plan.unix.group {
        Group::Same => Group::Own,
        chosen => chosen,
    };
    let options = UnixOptions { group, ..plan.unix.clone() };
    let plan = Plan { unix: &options, ..*plan };
    let layout = Layout::new(&plan)?;
    start(&child_setup(&plan, &layout, lists), start_uncontained)
}

/// Checks that a supervisor is possible for that child.
pub(super) fn can_supervise(plan: &Plan<'_>) -> Result<(), SpawnError> {
    // Its parent would be a process in this process's memory, which must not run closures.
    if !plan.unix.pre_exec.is_empty() {
        let reason = cannot_supervise(&"it has pre_exec closures");
        return Err(SpawnError::new(Step::Contain, reason));
    }
    can_supervise_any()
}

/// Checks that a supervisor is possible here.
pub(super) fn can_supervise_any() -> Result<(), SpawnError> {
    // Signals would go by a number that the supervisor may have freed.
    if pidfds_are_refused() {
        return Err(SpawnError::new(Step::Contain, cannot_supervise(&"no pidfds")));
    }
    image().map(drop).map_err(not_supervised)
}

/// Returns the error of a start whose tree cannot be supervised, now or here.
pub(super) fn not_supervised(error: io::Error) -> SpawnError {
    // Another way to hold it would not be better, only weaker.
    if is_lack(&error) {
        return SpawnError::new(Step::Create, error);
    }
    SpawnError::new(Step::Contain, cannot_supervise(&error))
}

pub(super) fn cannot_supervise(reason: &dyn fmt::Display) -> io::Error {
    let message = format!("its tree cannot be supervised: {reason}");
    io::Error::new(io::ErrorKind::Unsupported, message)
}

/// Returns the errno if the cgroup is the reason why the child could not be started. A lack of room does
/// not count.
fn cgroup_errno(error: &SpawnError) -> Option<Errno> {
    let errno = Errno::from_io_error(&error.source)?;
    let is_about_cgroup = match error.step {
        // It joins by a write. An error without a number is about the supervisor.
        Step::Contain => !is_lack_of_room(errno),
        // From CLONE_INTO_CGROUP (clone(2)). If that is not known, the child joins by a write.
        Step::Create => matches!(
            errno,
            Errno::ACCESS | Errno::BUSY | Errno::NODEV | Errno::NOENT | Errno::OPNOTSUPP
        ),
        _ => false,
    };
    is_about_cgroup.then_some(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_by_the_cgroup_count_as_cgroup_errors() {
        let about = |step, errno: Errno| cgroup_errno(&SpawnError::new(step, errno.into()));
        for errno in [Errno::ACCESS, Errno::BUSY, Errno::OPNOTSUPP] {
            assert_eq!(about(Step::Create, errno), Some(errno));
            assert_eq!(about(Step::Contain, errno), Some(errno));
        }
        for errno in [Errno::INVAL, Errno::NOSYS, Errno::PERM, Errno::AGAIN, Errno::NOMEM] {
            assert_eq!(about(Step::Create, errno), None, "clone itself says so");
        }
        assert_eq!(about(Step::Contain, Errno::MFILE), None);
        assert_eq!(about(Step::Exec, Errno::ACCESS), None);
        let message = SpawnError::new(Step::Contain, io::Error::other("no supervisor"));
        assert_eq!(cgroup_errno(&message), None);
    }
}
