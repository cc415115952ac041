//! The groups that hold the limits of a tree, and their figures.
//!
//! Each limit belongs to a controller of the kernel, and each controller is in cgroup v2 or in a hierarchy of cgroup
//! v1. If v2 has the controllers, the cgroup that contains the tree holds the limits too. For the others the child
//! joins a group of v1 before its program is loaded.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the controllers, and the choice of groups for a tree |
//! | `place.rs` | the cgroup of version 2 in which limited ones can be made |
//! | `delegated.rs` | the questions about one such cgroup |
//! | `scope.rs` | a scope that systemd makes for this process |
//! | `dbus/` | the calls to systemd |
//! | `groups.rs` | the groups of a tree, with their limits, and their counts of kills |
//! | `kept.rs` | the groups of a slot, for one tree after another |
//! | `meter.rs` | the figures of those groups, the victim, and a limit on memory without the kernel |
//! | `files.rs` | the files of a group |

mod dbus;
mod delegated;
pub(super) mod files;
mod groups;
mod kept;
mod meter;
mod place;
mod scope;

use std::io;
use std::os::fd::OwnedFd;

use super::cgroup::Cgroup;
use super::place::own_cgroups;
use crate::base::error::is_lack;
use crate::process::limits::{HeldLimits, LimitKind, LimitMechanism, LimitUnavailable, TreeLimits};
use groups::V1Groups;
use meter::Sampler;

pub(crate) use kept::{GroupNames, Joins, KeptGroups, keep};
pub(crate) use meter::{Meter, SampledTree};

/// The groups of a tree that has limits.
pub(crate) struct LimitedGroups {
    /// The cgroup that contains the tree; `None` if none can be made.
    pub(crate) cgroup: Option<Cgroup>,
    /// The files by which the child joins the groups of version 1.
    pub(crate) limit_procs: Vec<OwnedFd>,
    /// The figures of the groups. Its drop removes those of version 1.
    pub(crate) meter: Meter,
}

/// The reason why a tree could not be limited.
pub(crate) enum NotLimited {
    /// This machine does not let a limit be held.
    Unavailable(LimitUnavailable),
    /// The system refused something that works at other times.
    System(io::Error),
}

impl From<io::Error> for NotLimited {
    fn from(error: io::Error) -> NotLimited {
        NotLimited::System(error)
    }
}

impl LimitedGroups {
    /// Makes the groups, with their limits set.
    pub(crate) fn new(limits: TreeLimits) -> Result<LimitedGroups, NotLimited> {
        LimitedGroups::named(limits, &groups::unique_name())
    }

    /// Makes the groups under a name that no other tree has.
    fn named(limits: TreeLimits, name: &str) -> Result<LimitedGroups, NotLimited> {
        let mut held = HeldLimits { limits, ..HeldLimits::default() };
        let needed = Controllers::of(&limits);
        let own = &*own_cgroups()?.unwrap_or_default();
        let in_v2 = needed.and(place::visible(own)?);
        let cgroup = groups::cgroup(own, in_v2, &mut held, name)?;
        let in_v2 = if cgroup.is_some() { in_v2 } else { Controllers::NONE };
        let groups = V1Groups::new(own, needed.without(in_v2), &mut held, name)?;
        for kind in held.limits.kinds().collect::<Vec<_>>() {
            let controller = controller_of(kind);
            if !in_v2.has(controller) && !groups.has(controller) {
                let reason = format!("no {} controller is mounted", controller.name());
                held.give_up(LimitUnavailable::new(kind, reason))?;
            }
        }
        held.mechanism = match held.limits.kinds().next() {
            None => None,
            Some(_) if in_v2 == Controllers::NONE => Some(LimitMechanism::CgroupV1),
            Some(_) => Some(LimitMechanism::CgroupV2),
        };
        let sampler = held.sample(&limits)?;
        let limit_procs = groups.procs()?;
        let cgroup = match cgroup {
            Some(cgroup) => Some(cgroup),
            None => groups::for_measurement(own, name)?,
        };
        let (cgroup, place) = match cgroup {
            Some((cgroup, place)) => (Some(cgroup), place),
            None => (None, None),
        };
        let meter = Meter::new(held, groups, place, sampler);
        Ok(LimitedGroups { cgroup, limit_procs, meter })
    }
}

/// Checks that a limit can be held, and returns the mechanism and its place.
pub(crate) fn probe(kind: LimitKind) -> Result<String, LimitUnavailable> {
    const MANY_BYTES: u64 = 1 << 40;
    let limits = TreeLimits::new();
    let limits = match kind {
        LimitKind::Memory => limits.memory_max(MANY_BYTES),
        LimitKind::Swap => limits.memory_max(MANY_BYTES).memory_swap_max(0),
        LimitKind::Cpu => limits.cpu_max(1.0),
        LimitKind::Pids => limits.pids_max(1 << 20),
        LimitKind::OomGroup => limits.memory_max(MANY_BYTES).oom_group(),
    };
    let needed = Controllers::of(&limits);
    let no_room = |error: io::Error| LimitUnavailable::new(kind, error.to_string());
    let own = &*own_cgroups().map_err(no_room)?.unwrap_or_default();
    if needed.and(place::visible(own).map_err(no_room)?) == needed {
        if place::would_enter_scope(own, needed) {
            return Ok("cgroup v2; systemd makes a scope for this process first".to_owned());
        }
        if place::would_move(own, needed) {
            return Ok("cgroup v2; this process moves to a leaf first".to_owned());
        }
    }
    match LimitedGroups::new(limits) {
        Ok(groups) => Ok(groups.meter.mechanism()),
        Err(NotLimited::Unavailable(limit)) => Err(limit),
        Err(NotLimited::System(error)) => Err(LimitUnavailable::new(kind, error.to_string())),
    }
}

impl HeldLimits {
    /// Replaces a limit on memory that the kernel does not hold, and that may be left out, by looks at the memory.
    fn sample(&mut self, asked: &TreeLimits) -> io::Result<Option<Sampler>> {
        let is_memory = |missing: &LimitUnavailable| missing.limit == LimitKind::Memory;
        let Some(at) = self.missing.iter().position(is_memory) else { return Ok(None) };
        let Some(bytes) = asked.memory_max_bytes else { return Ok(None) };
        self.sampled = Some(self.missing.remove(at));
        self.limits.memory_max_bytes = Some(bytes);
        self.mechanism = self.mechanism.or(Some(LimitMechanism::Sampled));
        Sampler::new(bytes).map(Some)
    }

    /// Continues without a limit, if that was asked for.
    fn give_up(&mut self, limit: LimitUnavailable) -> Result<(), NotLimited> {
        if !self.limits.best_effort {
            return Err(NotLimited::Unavailable(limit));
        }
        self.limits.remove(limit.limit);
        self.missing.push(limit);
        Ok(())
    }

    /// Sets a limit by that action. Continues without it if this machine does not have the file, or has refused the
    /// value, and that was asked for.
    fn set(
        &mut self,
        kind: LimitKind,
        file: &str,
        set: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), NotLimited> {
        match set() {
            Ok(()) => Ok(()),
            Err(error) if is_lack(&error) => Err(error.into()),
            Err(error) => {
                let mut limit = LimitUnavailable::new(kind, format!("{file}: {error}"));
                if kind == LimitKind::Swap && error.kind() == io::ErrorKind::NotFound {
                    limit.reason = format!("this kernel does not count swap: it has no {file}");
                    limit.remedy = Some("the boot parameter swapaccount=1".to_owned());
                }
                self.give_up(limit)
            }
        }
    }
}

/// A controller of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Memory,
    Cpu,
    Pids,
}

impl Controller {
    const ALL: [Controller; 3] = [Controller::Memory, Controller::Cpu, Controller::Pids];

    fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Cpu => "cpu",
            Controller::Pids => "pids",
        }
    }

    /// Returns the limit that names the controller in an error: the first of those that need it.
    fn kind(self) -> LimitKind {
        match self {
            Controller::Memory => LimitKind::Memory,
            Controller::Cpu => LimitKind::Cpu,
            Controller::Pids => LimitKind::Pids,
        }
    }
}

/// Returns the controller that holds a limit.
fn controller_of(kind: LimitKind) -> Controller {
    match kind {
        LimitKind::Memory | LimitKind::Swap | LimitKind::OomGroup => Controller::Memory,
        LimitKind::Cpu => Controller::Cpu,
        LimitKind::Pids => Controller::Pids,
    }
}

/// A set of controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Controllers(u8);

impl Controllers {
    const NONE: Controllers = Controllers(0);

    /// Returns the controllers that the limits need.
    fn of(limits: &TreeLimits) -> Controllers {
        limits.kinds().fold(Controllers::NONE, |set, kind| set.with(controller_of(kind)))
    }

    fn named(text: &str) -> Controllers {
        let is_named =
            |it: &Controller| text.split_ascii_whitespace().any(|word| word == it.name());
        let named = Controller::ALL.into_iter().filter(is_named);
        named.fold(Controllers::NONE, Controllers::with)
    }

    fn with(self, controller: Controller) -> Controllers {
        Controllers(self.0 | 1 << controller as u8)
    }

    fn has(self, controller: Controller) -> bool {
        self.0 & 1 << controller as u8 != 0
    }

    fn and(self, other: Controllers) -> Controllers {
        Controllers(self.0 & other.0)
    }

    fn without(self, other: Controllers) -> Controllers {
        Controllers(self.0 & !other.0)
    }

    fn iter(self) -> impl Iterator<Item = Controller> {
        Controller::ALL.into_iter().filter(move |it| self.has(*it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_found_by_whole_words() {
        let named = Controllers::named("cpuset cpu io memory hugetlb\n");
        assert!(named.has(Controller::Cpu) && named.has(Controller::Memory));
        assert!(!named.has(Controller::Pids));
        assert_eq!(Controllers::named("cpuset pids.x"), Controllers::NONE);
    }

    #[test]
    fn limits_name_their_controllers() {
        let limits = TreeLimits { memory_swap_max_bytes: Some(0), ..TreeLimits::default() };
        let needed = Controllers::of(&limits);
        assert_eq!(needed.iter().collect::<Vec<_>>(), [Controller::Memory]);
        assert_eq!(needed.without(needed), Controllers::NONE);
    }
}
