//! The groups that hold the limits of a tree: the cgroup of version 2 that contains it, those of version 1 beside it,
//! and the reason for a kill for lack of memory, from their counts.

use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::place::{self, Ancestor, LimitedPlace, WRITABLE_MOUNT, delegation, own_ooms};
use super::{Controller, Controllers, NotLimited, controller_of, files};
use crate::base::error::is_lack;
use crate::base::generation::Generation;
use crate::process::contain::linux::cgroup::{Cgroup, is_permanent, name_of, stale_in};
use crate::process::contain::linux::place::{OwnCgroup, OwnCgroups, forget};
use crate::process::limits::{HeldLimits, LimitKind, LimitUnavailable, MemoryLimit, TreeLimits};

/// The period of a limit on CPU time, the kernel's default.
const CPU_PERIOD: Duration = Duration::from_millis(100);

/// The files that set what a cgroup does to the processes in it. Some exist only with their controller.
pub(super) const SETTINGS: [&str; 11] = [
    "cgroup.freeze",
    "cgroup.subtree_control",
    "memory.max",
    "memory.high",
    "memory.swap.max",
    "memory.oom.group",
    "cpu.max",
    "cpu.weight",
    "pids.max",
    "io.max",
    "cpuset.cpus",
];

/// A cgroup, and the place in which it was made if limited ones can be made there.
pub(super) type PlacedCgroup = (Cgroup, Option<Arc<LimitedPlace>>);

/// Makes a cgroup with those of the limits that need these controllers; `None` if there are none, or if all of them
/// were given up.
pub(super) fn cgroup(
    own: &OwnCgroups,
    controllers: Controllers,
    held: &mut HeldLimits,
    name: &str,
) -> Result<Option<PlacedCgroup>, NotLimited> {
    if controllers == Controllers::NONE {
        return Ok(None);
    }
    let kinds: Vec<LimitKind> =
        held.limits.kinds().filter(|it| controllers.has(controller_of(*it))).collect();
    let (cgroup, place) = match make(own, controllers, name) {
        Ok(made) => made,
        Err(NotLimited::Unavailable(reason)) => {
            for kind in kinds {
                held.give_up(LimitUnavailable { limit: kind, ..reason.clone() })?;
            }
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    for kind in kinds {
        let (file, text) = setting(kind, &held.limits);
        held.set(kind, file, || files::write(cgroup.dir(), file, &text))?;
    }
    Ok(Some((cgroup, Some(place))))
}

/// Makes a cgroup that has these controllers.
fn make(
    own: &OwnCgroups,
    controllers: Controllers,
    name: &str,
) -> Result<(Cgroup, Arc<LimitedPlace>), NotLimited> {
    let mut has_tried = false;
    loop {
        let place = place::find(own, controllers, true)?;
        match Cgroup::create(Arc::clone(&place.dir), name) {
            Ok(cgroup) => return Ok((cgroup, place)),
            // The place may have been removed, or taken from this process.
            Err(Some(error)) if is_permanent(error) || error == Errno::NODEV => {
                place::forget();
                if has_tried {
                    return Err(NotLimited::System(error.into()));
                }
                has_tried = true;
            }
            Err(Some(error)) => return Err(NotLimited::System(error.into())),
            Err(None) => return Err(NotLimited::System(io::ErrorKind::Unsupported.into())),
        }
    }
}

/// Makes a cgroup for a tree that has no limit in version 2: for its containment, and for the figures that its
/// controllers have.
pub(super) fn for_measurement(own: &OwnCgroups, name: &str) -> io::Result<Option<PlacedCgroup>> {
    let found = place::find(own, Controllers::named("memory pids"), false).ok();
    let made = found.and_then(|place| {
        let cgroup = Cgroup::create(Arc::clone(&place.dir), name).ok()?;
        Some((cgroup, Some(place)))
    });
    match made {
        Some(made) => Ok(Some(made)),
        None => Ok(Cgroup::named(own, name)?.map(|cgroup| (cgroup, None))),
    }
}

/// Returns the file of a limit, and its text.
fn setting(kind: LimitKind, limits: &TreeLimits) -> (&'static str, String) {
    match kind {
        LimitKind::Memory => ("memory.max", text(limits.memory_max_bytes)),
        LimitKind::Swap => ("memory.swap.max", text(limits.memory_swap_max_bytes)),
        LimitKind::Cpu => ("cpu.max", {
            let quota = cpu_quota(limits.cpu_time_per_second.unwrap_or(Duration::MAX));
            format!("{} {}", quota.as_micros(), CPU_PERIOD.as_micros())
        }),
        LimitKind::Pids => ("pids.max", text(limits.pids_max)),
        LimitKind::OomGroup => ("memory.oom.group", "1".to_owned()),
    }
}

fn text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "max".to_owned(), |limit| limit.to_string())
}

/// Returns the CPU time of one period.
fn cpu_quota(time_per_second: Duration) -> Duration {
    const PERIODS: u32 = 10;
    const MOST: Duration = Duration::from_secs(1 << 20);
    time_per_second.min(MOST) / PERIODS
}

/// Returns a name that no other tree ever has, on this machine: the kernel's log names victims by it.
pub(super) fn unique_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // With a letter: trees without limits have a number there.
    name_of(format_args!("l{number}-{:x}", now.as_micros()))
}

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
    oom_events: Option<OwnedFd>,
}

impl V1Groups {
    /// Makes the groups of these controllers, with the limits that need them. A controller that is nowhere mounted is
    /// left out.
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
                    for kind in held
                        .limits
                        .kinds()
                        .filter(|it| controller_of(*it) == controller)
                        .collect::<Vec<_>>()
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
            if let Some(group) = groups.of(controller_of(kind)) {
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
        match v1_setting(kind, &held.limits) {
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
pub(super) fn v1_settings_of(controller: Controller) -> &'static [&'static str] {
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
fn v1_setting(kind: LimitKind, limits: &TreeLimits) -> Result<(&'static str, u64), &'static str> {
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

// A group counts the processes in it that were killed (`oom_kill`), whichever limit was reached; and the moments in
// which its own limit was reached (`oom`). A kill by another process changes neither.

/// The kills in a group, and the limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kills {
    pub(super) count: u64,
    pub(super) limit: MemoryLimit,
}

/// Returns the kills in a cgroup of version 2, whose `memory.events` are those; `None` if there was none.
pub(super) fn kills_in_v2(
    cgroup: &Cgroup,
    events: &str,
    limit_bytes: Option<u64>,
    ancestors: &[(&Ancestor, u64)],
) -> Option<Kills> {
    let count = files::value(events, "oom_kill").filter(|count| *count > 0)?;
    let own = own_ooms(cgroup.dir());
    let reached = files::value(events, "oom").unwrap_or(0);
    let around = ancestors.iter().find(|(ancestor, before)| ancestor.ooms() > *before);
    let limit = match (limit_bytes, around) {
        (Some(bytes), _) if own > 0 => MemoryLimit::OfCommand(bytes),
        _ if reached > own => MemoryLimit::OfDescendant,
        (_, Some((ancestor, _))) => MemoryLimit::OfAncestor(Some(ancestor.limit_bytes)),
        _ => MemoryLimit::Machine,
    };
    Some(Kills { count, limit })
}

/// Returns the kills in a group of version 1, whose `memory.oom_control` is that; `None` if there was none.
pub(super) fn kills_in_v1(
    group: &V1Group,
    control: &str,
    limit_bytes: Option<u64>,
) -> Option<Kills> {
    let count = files::value(control, "oom_kill").filter(|count| *count > 0)?;
    // Raised if this group or one around it was out of memory, but not the whole machine.
    let raised = group.was_out_of_memory();
    let was_full = was_full(group, "memory") || was_full(group, "memory.memsw");
    let limit = match limit_bytes {
        _ if !raised => MemoryLimit::Machine,
        Some(bytes) if was_full => MemoryLimit::OfCommand(bytes),
        _ => MemoryLimit::OfAncestor(None),
    };
    Some(Kills { count, limit })
}

/// Returns true if one of the two counters of a group of version 1 has reached its limit.
fn was_full(group: &V1Group, counter: &str) -> bool {
    /// The kernel charges 64 pages at a time.
    const BATCH_BYTES: u64 = 64 * 4096;
    let number = |file: &str| files::number(group.dir(), &format!("{counter}.{file}"));
    // Since Linux 6.13 or so, the kernel does not count the failures of both counters.
    number("failcnt").is_some_and(|count| count > 0)
        || number("max_usage_in_bytes")
            .zip(number("limit_in_bytes"))
            .is_some_and(|(most, limit)| most.saturating_add(BATCH_BYTES) >= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let limits = TreeLimits {
            memory_max_bytes: Some(1 << 20),
            cpu_time_per_second: Some(Duration::from_millis(1500)),
            ..TreeLimits::default()
        };
        assert_eq!(setting(LimitKind::Memory, &limits), ("memory.max", "1048576".to_owned()));
        assert_eq!(setting(LimitKind::Cpu, &limits), ("cpu.max", "150000 100000".to_owned()));
        assert_eq!(setting(LimitKind::Pids, &limits), ("pids.max", "max".to_owned()));
    }

    #[test]
    fn names_are_unique_and_fit() {
        let (one, two) = (unique_name(), unique_name());
        assert_ne!(one, two);
        assert!(one.len() < 56, "{one}");
    }
}
