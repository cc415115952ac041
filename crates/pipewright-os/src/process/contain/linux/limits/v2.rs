//! The cgroup of version 2 that contains a tree and holds its limits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use super::controller::{Controllers, of};
use super::place::{self, LimitedPlace};
use super::{NotLimited, files};
use crate::process::contain::linux::cgroup::{Cgroup, is_permanent, name_of};
use crate::process::contain::linux::place::OwnCgroups;
use crate::process::limits::{HeldLimits, LimitKind, LimitUnavailable, TreeLimits};

/// The period of a limit on CPU time, the kernel's default.
pub(super) const CPU_PERIOD: Duration = Duration::from_millis(100);

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

/// Makes a cgroup with those of the limits that need these controllers; `None` if there are none, or if all of them were
/// given up.
pub(super) fn cgroup(
    own: &OwnCgroups,
    controllers: Controllers,
    held: &mut HeldLimits,
    name: &str,
) -> Result<Option<PlacedCgroup>, NotLimited> {
    if controllers == Controllers::NONE {
        return Ok(None);
    }
    let kinds: Vec<LimitKind> = held.limits.kinds().filter(|it| controllers.has(of(*it))).collect();
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

/// Makes a cgroup for a tree that has no limit in version 2: for its containment, and for the figures that its controllers
/// have.
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
pub(super) fn cpu_quota(time_per_second: Duration) -> Duration {
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
