//! The groups of version 1 that hold limits of a tree, beside what contains it.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fs::{AtFlags, Mode, OFlags};

use super::controller::{Controller, Controllers, of};
use super::place::{WRITABLE_MOUNT, delegation};
use super::v2::cpu_quota;
use super::{NotLimited, files};
use crate::base::generation::Generation;
use crate::process::contain::linux::cgroup::stale_in;
use crate::process::contain::linux::place::{OwnCgroup, OwnCgroups, forget};
use crate::process::limits::{HeldLimits, LimitKind, LimitUnavailable, TreeLimits};
use crate::process::room::is_lack;

/// The groups of one tree.
#[derive(Debug, Default)]
pub(super) struct V1Groups(Vec<V1Group>);

/// One group, in the hierarchy of a controller.
///
/// # Drop
/// Removes it. The processes of the tree have ended before.
#[derive(Debug)]
pub(super) struct V1Group {
    /// The process that has made it. A fork of it leaves it alone.
    made_in: Generation,
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
        own: &OwnCgroups,
        controllers: Controllers,
        held: &mut HeldLimits,
        name: &str,
    ) -> Result<V1Groups, NotLimited> {
        let mut groups = V1Groups::default();
        if controllers == Controllers::NONE {
            return Ok(groups);
        }
        let mut paths: Vec<PathBuf> = Vec::new();
        for controller in controllers.iter() {
            let Some(own) = own.of(Some(controller.name()))? else { continue };
            let path = own.path();
            // Two controllers may share a hierarchy.
            if let Some(at) = paths.iter().position(|known| *known == path) {
                groups.0[at].controllers = groups.0[at].controllers.with(controller);
                continue;
            }
            match V1Group::new(controller, own, name) {
                Ok(group) => groups.0.push(group),
                Err(error) if is_lack(&error) => return Err(error.into()),
                Err(error) => {
                    forget();
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
                            false => delegation(&own.top, &own.path(), &["cgroup.procs"]),
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

    pub(super) fn of(&self, controller: Controller) -> Option<&V1Group> {
        self.0.iter().find(|group| group.controllers.has(controller))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &V1Group> {
        self.0.iter()
    }

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
    fn new(controller: Controller, own: &OwnCgroup, name: &str) -> io::Result<V1Group> {
        let path = CString::new(own.path().join(name).into_os_string().into_vec())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = own.dir()?;
        remove_stale(controller, parent.as_fd());
        let name = CString::new(name)?;
        rustix::fs::mkdirat(&parent, &name, Mode::from_raw_mode(0o755))?;
        let opened = rustix::fs::openat(&parent, &name, flags, Mode::empty());
        let dir = opened.inspect_err(|_| {
            // Ignored: an empty directory may stay behind.
            let _ = rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR);
        })?;
        let controllers = Controllers::NONE.with(controller);
        let made_in = Generation::current();
        let mut group = V1Group { made_in, controllers, parent, name, path, dir, oom_events: None };
        if controller == Controller::Memory {
            // Groups that the tree makes in it are limited too. Ignored: newer kernels know no other way.
            if !has_hierarchy(group.parent.as_fd()) {
                let _ = files::write(group.dir(), "memory.use_hierarchy", "1");
            }
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

    fn set(&self, kind: LimitKind, held: &mut HeldLimits) -> Result<(), NotLimited> {
        match setting(kind, &held.limits) {
            Ok((file, number)) => {
                held.set(kind, file, || files::write(self.dir(), file, &number.to_string()))
            }
            Err(reason) => held.give_up(LimitUnavailable::new(kind, reason)),
        }
    }

    /// Returns true if it, or one around it, was ever out of memory.
    pub(super) fn was_out_of_memory(&self) -> bool {
        self.oom_events.as_ref().is_some_and(|events| {
            let mut polled = [PollFd::new(events, PollFlags::IN)];
            rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok_and(|it| it > 0)
        })
    }
}

/// Returns the files that set what a group of that controller does to the processes in it.
pub(super) fn settings_of(controller: Controller) -> &'static [&'static str] {
    match controller {
        // The last one can disable kills for lack of memory: a process would wait instead.
        Controller::Memory => {
            &["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"]
        }
        Controller::Cpu => &["cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares"],
        Controller::Pids => &["pids.max"],
    }
}

/// Returns the file of a limit, and its number; or the reason why version 1 does not have it.
fn setting(kind: LimitKind, limits: &TreeLimits) -> Result<(&'static str, u64), &'static str> {
    match kind {
        LimitKind::Memory => {
            Ok(("memory.limit_in_bytes", limits.memory_max_bytes.unwrap_or(u64::MAX)))
        }
        LimitKind::Swap => {
            // The limit is on memory and swap together, so it needs one on memory.
            let sum = limits.memory_max_bytes.zip(limits.memory_swap_max_bytes);
            let sum = sum.map(|(memory, swap)| memory.saturating_add(swap));
            sum.map(|sum| ("memory.memsw.limit_in_bytes", sum))
                .ok_or("cgroup v1 limits swap only together with memory: set memory_max")
        }
        LimitKind::Cpu => {
            // Of the kernel's default period, which a new group has.
            let quota = cpu_quota(limits.cpu_time_per_second.unwrap_or_default());
            Ok(("cpu.cfs_quota_us", u64::try_from(quota.as_micros()).unwrap_or(u64::MAX)))
        }
        LimitKind::Pids => Ok(("pids.max", limits.pids_max.unwrap_or(u64::MAX))),
        LimitKind::OomGroup => Err("memory.oom.group is a file of cgroup v2"),
    }
}

impl Drop for V1Group {
    fn drop(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        // Ignored: a process is still in it; the next process that makes groups here removes it.
        let _ = rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Returns true if the limits of a group in there, whose memory is counted by that group, hold for the groups in it too
/// (always since Linux 5.11).
fn has_hierarchy(parent: BorrowedFd<'_>) -> bool {
    static KNOWN: AtomicBool = AtomicBool::new(false);
    if !KNOWN.load(Ordering::Relaxed) {
        let has = files::number(parent, "memory.use_hierarchy") == Some(1);
        KNOWN.store(has, Ordering::Relaxed);
    }
    KNOWN.load(Ordering::Relaxed)
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
