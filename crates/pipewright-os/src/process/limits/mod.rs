//! Limits on the resources of a whole process tree, and the reasons why a tree ran out of memory: plain data.
//!
//! | file | contents |
//! |---|---|
//! | `job.rs` | the figures of a job of Windows |
//! | `unavailable.rs` | a limit that cannot be held here |
//! | `oom.rs` | an end for lack of memory |

#[cfg(any(windows, test))]
pub(crate) mod job;
mod oom;
mod unavailable;

use std::fmt;
use std::time::Duration;

pub use oom::{MemoryLimit, OutOfMemory, Victim};
pub use unavailable::{LimitUnavailable, MissingLimit};

use crate::process::usage::TreeUsage;

/// Limits on a whole process tree: on all of its processes together.
///
/// A limit either holds or the start is an error; [`best_effort`](Self::best_effort) changes that.
///
/// ```
/// # use pipewright_os::process::limits::TreeLimits as Limits;
/// let limits = Limits::new().memory_max(2 << 30).memory_swap_max(0).cpu_max(1.5).pids_max(200);
/// assert_eq!(limits.memory_max_bytes, Some(2 << 30));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TreeLimits {
    /// The memory of all processes together, in bytes, without swap.
    pub memory_max_bytes: Option<u64>,
    /// The swap of all processes together, in bytes.
    pub memory_swap_max_bytes: Option<u64>,
    /// The CPU time that all processes together get in one second.
    pub cpu_time_per_second: Option<Duration>,
    /// The number of processes and threads at one time.
    pub pids_max: Option<u64>,
    /// True to kill the whole tree when one of its processes is killed for lack of memory.
    pub oom_group: bool,
    /// True to start without a limit that cannot be held. The result then says which one is missing.
    pub best_effort: bool,
}

/// One of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitKind {
    /// [`TreeLimits::memory_max_bytes`].
    Memory,
    /// [`TreeLimits::memory_swap_max_bytes`].
    Swap,
    /// [`TreeLimits::cpu_time_per_second`].
    Cpu,
    /// [`TreeLimits::pids_max`].
    Pids,
    /// [`TreeLimits::oom_group`].
    OomGroup,
}

/// The mechanism that holds the limits of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitMechanism {
    /// A control group, version 2 (Linux).
    CgroupV2,
    /// Control groups of version 1 (Linux).
    CgroupV1,
    /// A job object (Windows).
    Job,
    /// Looks at the memory of the processes from time to time; the tree is killed when they use too much (Linux). Only with
    /// [`TreeLimits::best_effort`].
    Sampled,
}

/// The limits in force for a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HeldLimits {
    /// The limits in force; a limit that could not be held is `None`.
    pub limits: TreeLimits,
    /// The mechanism that holds them; `None` if none is held.
    pub mechanism: Option<LimitMechanism>,
    /// The reason why the limit on memory is only looked after from time to time, if it is: between two looks the tree can
    /// use more. Only with [`TreeLimits::best_effort`].
    pub sampled: Option<LimitUnavailable>,
    /// The limits that could not be held, with the reasons.
    pub missing: Vec<MissingLimit>,
}

/// The resources that a tree with limits used, and the limits in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TreeResources {
    /// The limits in force.
    pub held: HeldLimits,
    /// The usage of the whole tree.
    pub usage: TreeUsage,
    /// The number of processes of the tree that the kernel killed for lack of memory, and the reason.
    pub out_of_memory: Option<OutOfMemory>,
    /// The number of starts of processes and threads that the limit on their number refused.
    pub refused_starts: u64,
}

impl TreeLimits {
    /// The shortest CPU time per second that can be held.
    const LEAST_CPU: Duration = Duration::from_millis(10);

    /// Creates a set of limits in which none is set. A tree with it is measured, and not limited.
    #[must_use]
    pub fn new() -> TreeLimits {
        TreeLimits::default()
    }

    /// Limits the memory, in bytes. Swap is not part of it. If the tree needs more, the kernel kills a process of it, and
    /// the run ends as out of memory.
    ///
    /// # Platform
    /// Linux: `memory.max` (cgroup v2) or `memory.limit_in_bytes` (v1), which count cached file data too. Windows:
    /// `JobMemoryLimit`, which counts committed memory; an allocation beyond it fails, and no process is killed.
    #[must_use]
    pub fn memory_max(self, bytes: u64) -> TreeLimits {
        TreeLimits { memory_max_bytes: Some(bytes), ..self }
    }

    /// Limits the swap, in bytes; 0 allows none.
    ///
    /// # Platform
    /// Linux: `memory.swap.max` (v2), or `memory.memsw.limit_in_bytes` (v1), which also needs
    /// [`memory_max`](Self::memory_max). Elsewhere it cannot be held.
    #[must_use]
    pub fn memory_swap_max(self, bytes: u64) -> TreeLimits {
        TreeLimits { memory_swap_max_bytes: Some(bytes), ..self }
    }

    /// Limits the CPU time to that of so many processors; 0.5 is half of one. At least 0.01.
    ///
    /// # Platform
    /// Linux: `cpu.max` (v2) or `cpu.cfs_quota_us` (v1), in periods of 100 ms. Windows: `CpuRate` with a hard cap.
    #[must_use]
    pub fn cpu_max(self, processors: f64) -> TreeLimits {
        // A value without a meaning becomes one that the start refuses.
        let time = Duration::try_from_secs_f64(processors).unwrap_or(Duration::ZERO);
        TreeLimits { cpu_time_per_second: Some(time), ..self }
    }

    /// Limits the number of processes and threads at one time. A start beyond it fails in the tree.
    ///
    /// # Platform
    /// Linux: `pids.max`. Windows: `ActiveProcessLimit`, which counts processes only.
    #[must_use]
    pub fn pids_max(self, most: u64) -> TreeLimits {
        TreeLimits { pids_max: Some(most), ..self }
    }

    /// Kills the whole tree when one of its processes is killed for lack of memory. Needs
    /// [`memory_max`](Self::memory_max).
    ///
    /// # Platform
    /// Linux: `memory.oom.group` (cgroup v2). Elsewhere it cannot be held.
    #[must_use]
    pub fn oom_group(self) -> TreeLimits {
        TreeLimits { oom_group: true, ..self }
    }

    /// Starts the command without a limit that cannot be held here. The result says which ones held
    /// ([`HeldLimits`]).
    #[must_use]
    pub fn best_effort(self) -> TreeLimits {
        TreeLimits { best_effort: true, ..self }
    }

    /// Returns the reason why the values cannot be meant.
    #[must_use]
    pub fn mistake(&self) -> Option<&'static str> {
        if self.memory_max_bytes == Some(0) {
            return Some("memory_max is 0: no program can start");
        }
        if self.pids_max == Some(0) {
            return Some("pids_max is 0: no program can start");
        }
        if self.cpu_time_per_second.is_some_and(|time| time < TreeLimits::LEAST_CPU) {
            return Some("cpu_max must be at least 0.01 processors");
        }
        if self.oom_group && self.memory_max_bytes.is_none() {
            return Some("oom_group needs memory_max");
        }
        None
    }

    /// Returns the limits that are set.
    pub fn kinds(&self) -> impl Iterator<Item = LimitKind> {
        let set = [
            (LimitKind::Memory, self.memory_max_bytes.is_some()),
            (LimitKind::Swap, self.memory_swap_max_bytes.is_some()),
            (LimitKind::Cpu, self.cpu_time_per_second.is_some()),
            (LimitKind::Pids, self.pids_max.is_some()),
            (LimitKind::OomGroup, self.oom_group),
        ];
        set.into_iter().filter(|(_, is_set)| *is_set).map(|(kind, _)| kind)
    }

    /// Removes a limit.
    pub fn remove(&mut self, kind: LimitKind) {
        match kind {
            LimitKind::Memory => self.memory_max_bytes = None,
            LimitKind::Swap => self.memory_swap_max_bytes = None,
            LimitKind::Cpu => self.cpu_time_per_second = None,
            LimitKind::Pids => self.pids_max = None,
            LimitKind::OomGroup => self.oom_group = false,
        }
    }
}

impl LimitKind {
    /// Returns the name of the setter.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LimitKind::Memory => "memory_max",
            LimitKind::Swap => "memory_swap_max",
            LimitKind::Cpu => "cpu_max",
            LimitKind::Pids => "pids_max",
            LimitKind::OomGroup => "oom_group",
        }
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for LimitMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LimitMechanism::CgroupV2 => "cgroup v2",
            LimitMechanism::CgroupV1 => "cgroup v1",
            LimitMechanism::Job => "job",
            LimitMechanism::Sampled => "sampled",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_cannot_be_meant_are_found() {
        let none = TreeLimits::default();
        assert_eq!(none.mistake(), None);
        let mistakes = [
            TreeLimits { memory_max_bytes: Some(0), ..none },
            TreeLimits { pids_max: Some(0), ..none },
            TreeLimits { cpu_time_per_second: Some(Duration::ZERO), ..none },
            TreeLimits { oom_group: true, ..none },
        ];
        for limits in mistakes {
            assert!(limits.mistake().is_some(), "{limits:?}");
        }
        let least = Duration::from_millis(10);
        assert_eq!(TreeLimits { cpu_time_per_second: Some(least), ..none }.mistake(), None);
    }

    #[test]
    fn a_removed_limit_is_no_longer_set() {
        let mut limits = TreeLimits {
            memory_max_bytes: Some(1),
            memory_swap_max_bytes: Some(0),
            cpu_time_per_second: Some(Duration::from_secs(1)),
            pids_max: Some(1),
            oom_group: true,
            best_effort: false,
        };
        for kind in limits.kinds().collect::<Vec<_>>() {
            limits.remove(kind);
            assert!(limits.kinds().all(|left| left != kind), "{kind}");
        }
        assert_eq!(limits, TreeLimits::default());
    }
}
