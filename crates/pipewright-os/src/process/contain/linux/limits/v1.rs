//! The groups of version 1 that hold limits of a tree, beside what contains it.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{AtFlags, Mode, OFlags};

use super::controller::{Controller, Controllers, of};
use super::place::WRITABLE_MOUNT;
use super::v2::{CPU_PERIOD, cpu_quota, group_name};
use super::{NotLimited, files};
use crate::process::contain::linux::cgroup::stale_in;
use crate::process::contain::linux::place::own_in_hierarchy;
use crate::process::limits::{HeldLimits, LimitKind, LimitUnavailable};
use crate::process::procfs;

/// The groups of one tree.
#[derive(Debug, Default)]
pub(super) struct V1Groups(Vec<V1Group>);

/// One group, in the hierarchy of a controller.
///
/// # Drop
/// Removes it. The processes of the tree have ended before.
#[derive(Debug)]
pub(super) struct V1Group {
    pub(super) controllers: Controllers,
    parent: Arc<OwnedFd>,
    name: CString,
    path: CString,
    dir: OwnedFd,
    /// Counts the moments in which the group, or one around it, was out of memory.
    pub(super) oom_events: Option<OwnedFd>,
}

impl V1Groups {
    /// Makes the groups of these controllers, with the limits that need them. A controller that is nowhere mounted is left
    /// out.
    pub(super) fn new(
        controllers: Controllers,
        held: &mut HeldLimits,
    ) -> Result<V1Groups, NotLimited> {
        let mut groups = V1Groups::default();
        if controllers == Controllers::NONE || crate::base::fallback::NO_CGROUP {
            return Ok(groups);
        }
        let name = group_name();
        let cgroups = procfs::read("/proc/self/cgroup").unwrap_or_default();
        let mut paths: Vec<PathBuf> = Vec::new();
        for controller in controllers.iter() {
            let Some((top, below)) = own_in_hierarchy(&cgroups, Some(controller.name())) else {
                continue;
            };
            let path = top.join(below);
            // Two controllers may share a hierarchy.
            if let Some(at) = paths.iter().position(|known| *known == path) {
                groups.0[at].controllers = groups.0[at].controllers.with(controller);
                continue;
            }
            match V1Group::new(controller, &path, &name) {
                Ok(group) => groups.0.push(group),
                Err(error) => {
                    let path = path.display();
                    for kind in
                        held.limits.kinds().filter(|it| of(*it) == controller).collect::<Vec<_>>()
                    {
                        let is_read_only = error.kind() == io::ErrorKind::ReadOnlyFilesystem;
                        let reason = match is_read_only {
                            true => format!("the cgroup {path} is mounted read-only"),
                            false => format!("no group can be made in {path}: {error}"),
                        };
                        let mut limit = LimitUnavailable::new(kind, reason);
                        limit.remedy = Some(match is_read_only {
                            true => WRITABLE_MOUNT.to_owned(),
                            false => format!(
                                "as root: chown {} {path} {path}/cgroup.procs",
                                rustix::process::geteuid().as_raw()
                            ),
                        });
                        held.give_up(limit)?;
                    }
                    continue;
                }
            }
            paths.push(path);
        }
        for kind in held.limits.kinds().collect::<Vec<_>>() {
            if let Some(group) = groups.of(of(kind)) {
                group.set(kind, held)?;
            }
        }
        Ok(groups)
    }

    pub(super) fn has(&self, controller: Controller) -> bool {
        self.of(controller).is_some()
    }

    /// Returns the group of a controller.
    pub(super) fn of(&self, controller: Controller) -> Option<&V1Group> {
        self.0.iter().find(|group| group.controllers.has(controller))
    }

    /// Returns their paths.
    pub(super) fn paths(&self) -> Vec<CString> {
        self.0.iter().map(|group| group.path.clone()).collect()
    }

    /// Opens the files to which a child that joins the groups writes `0`.
    pub(super) fn procs(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |group: &V1Group| files::open(group.dir(), "cgroup.procs", OFlags::WRONLY);
        self.0.iter().map(open).collect()
    }
}

impl V1Group {
    fn new(controller: Controller, parent: &Path, name: &str) -> io::Result<V1Group> {
        let path = CString::new(parent.join(name).into_os_string().into_vec())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, flags, Mode::empty())?;
        remove_stale(controller, parent.as_fd());
        let name = CString::new(name)?;
        rustix::fs::mkdirat(&parent, &name, Mode::from_raw_mode(0o755))?;
        let opened = rustix::fs::openat(&parent, &name, flags, Mode::empty());
        let dir = opened.inspect_err(|_| {
            // Ignored: an empty directory may stay behind.
            let _ = rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR);
        })?;
        let controllers = Controllers::NONE.with(controller);
        let mut group =
            V1Group { controllers, parent: Arc::new(parent), name, path, dir, oom_events: None };
        if controller == Controller::Memory {
            // Groups that the tree makes in it are limited too. Ignored: newer kernels know no other way.
            let _ = files::write(group.dir(), "memory.use_hierarchy", "1");
            group.oom_events = group.register().ok();
        }
        Ok(group)
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub(super) fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Returns an eventfd that the kernel raises whenever the group is out of memory.
    fn register(&self) -> io::Result<OwnedFd> {
        let control = files::open(self.dir(), "memory.oom_control", OFlags::RDONLY)?;
        let events = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let text = format!("{} {}", events.as_raw_fd(), control.as_raw_fd());
        files::write(self.dir(), "cgroup.event_control", &text)?;
        Ok(events)
    }

    /// Sets a limit.
    fn set(&self, kind: LimitKind, held: &mut HeldLimits) -> Result<(), NotLimited> {
        let limits = held.limits;
        match kind {
            LimitKind::Memory => {
                let Some(bytes) = limits.memory_max_bytes else { return Ok(()) };
                let file = "memory.limit_in_bytes";
                held.set(kind, file, || files::write(self.dir(), file, &bytes.to_string()))
            }
            LimitKind::Swap => {
                let file = "memory.memsw.limit_in_bytes";
                // The limit is on memory and swap together, so it needs one on memory.
                let sum = limits.memory_max_bytes.zip(limits.memory_swap_max_bytes);
                let Some(sum) = sum.map(|(memory, swap)| memory.saturating_add(swap)) else {
                    let reason = "cgroup v1 limits swap only together with memory: set memory_max";
                    return held.give_up(LimitUnavailable::new(kind, reason));
                };
                held.set(kind, file, || files::write(self.dir(), file, &sum.to_string()))
            }
            LimitKind::Cpu => {
                let quota = cpu_quota(limits.cpu_time_per_second.unwrap_or_default());
                held.set(kind, "cpu.cfs_quota_us", || {
                    let period = CPU_PERIOD.as_micros().to_string();
                    files::write(self.dir(), "cpu.cfs_period_us", &period)?;
                    files::write(self.dir(), "cpu.cfs_quota_us", &quota.as_micros().to_string())
                })
            }
            LimitKind::Pids => {
                let Some(most) = limits.pids_max else { return Ok(()) };
                held.set(kind, "pids.max", || {
                    files::write(self.dir(), "pids.max", &most.to_string())
                })
            }
            LimitKind::OomGroup => {
                let reason = "memory.oom.group is a file of cgroup v2";
                held.give_up(LimitUnavailable::new(kind, reason))
            }
        }
    }
}

impl Drop for V1Group {
    fn drop(&mut self) {
        // Ignored: a process is still in it; the next process that makes groups here removes it.
        let _ = rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Removes the empty groups that killed processes have left behind; once in the life of this process.
fn remove_stale(controller: Controller, parent: BorrowedFd<'_>) {
    static DONE: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
    if DONE[controller as usize].swap(true, Ordering::Relaxed) {
        return;
    }
    for dir in stale_in(parent) {
        // Ignored: a process is in it, or another process was faster.
        let _ = fs::remove_dir(dir);
    }
}
