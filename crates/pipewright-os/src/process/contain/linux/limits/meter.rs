//! The figures of the groups of a tree.

use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

use super::controller::Controller;
use super::files;
use super::kernel_log::{self, LoggedKill};
use super::oom::{self, Kills};
use super::place::LimitedPlace;
use super::sampled::{SampledTree, Sampler};
use super::v1::V1Groups;
use crate::process::contain::linux::TreeMeter;
use crate::process::contain::linux::cgroup::Cgroup;
use crate::process::limits::{HeldLimits, MemoryLimit, OutOfMemory, TreeResources};
use crate::process::usage::TreeUsage;

/// The groups of a tree, and the counts of the groups around it at its start.
#[derive(Debug)]
pub(crate) struct Meter {
    held: HeldLimits,
    groups: V1Groups,
    /// The place of the cgroup, and the counts of its ancestors that limit the memory.
    around: Option<(Arc<LimitedPlace>, Vec<u64>)>,
    /// Looks at the memory of the tree, if nothing else limits it.
    sampler: Option<Sampler>,
}

impl Meter {
    pub(super) fn new(
        held: HeldLimits,
        groups: V1Groups,
        place: Option<Arc<LimitedPlace>>,
        sampler: Option<Sampler>,
    ) -> Meter {
        let around = place.map(|place| {
            let counts = place.ancestors.iter().map(oom::Ancestor::ooms).collect();
            (place, counts)
        });
        Meter { held, groups, around, sampler }
    }

    /// Returns the name of the mechanism that holds the limits.
    pub(super) fn mechanism(&self) -> String {
        self.held.mechanism.map(|it| it.to_string()).unwrap_or_default()
    }

    fn kills(&self, cgroup: Option<&Cgroup>) -> Option<(Kills, Option<u64>, String)> {
        let limit = self.held.limits.memory_max_bytes;
        if let Some(group) = self.groups.of(Controller::Memory) {
            let kills = oom::in_v1(group, limit)?;
            let peak = files::number(group.dir(), "memory.max_usage_in_bytes");
            return Some((kills, peak, group.name()));
        }
        let cgroup = cgroup?;
        let ancestors: Vec<_> = match &self.around {
            Some((place, counts)) => place.ancestors.iter().zip(counts.iter().copied()).collect(),
            None => Vec::new(),
        };
        let kills = oom::in_v2(cgroup, limit, &ancestors)?;
        let peak = files::number(cgroup.dir(), "memory.peak");
        Some((kills, peak, cgroup.name().to_string_lossy().into_owned()))
    }

    fn usage(&self, cgroup: Option<&Cgroup>) -> TreeUsage {
        let mut usage = TreeUsage::default();
        if let Some(cgroup) = cgroup {
            let read = |file| cgroup.read(file).unwrap_or_default();
            let stat = read("cpu.stat");
            let micros = |key| files::value(&stat, key).map(Duration::from_micros);
            usage.user = micros("user_usec");
            usage.system = micros("system_usec");
            usage.memory_stall = files::stalled(&read("memory.pressure"));
            usage.cpu_stall = files::stalled(&read("cpu.pressure"));
            usage.io_stall = files::stalled(&read("io.pressure"));
            usage.peak_memory_bytes = files::number(cgroup.dir(), "memory.peak");
            usage.peak_pids = files::number(cgroup.dir(), "pids.peak");
        }
        if let Some(group) = self.groups.of(Controller::Memory) {
            usage.peak_memory_bytes = files::number(group.dir(), "memory.max_usage_in_bytes");
        }
        if let Some(peak) = self.sampler.as_ref().and_then(Sampler::peak_bytes) {
            usage.peak_memory_bytes = Some(peak);
        }
        if let Some(group) = self.groups.of(Controller::Pids) {
            usage.peak_pids = files::number(group.dir(), "pids.peak");
        }
        usage
    }

    /// Returns how many starts of processes and threads the limit on their number has refused.
    fn refused_starts(&self, cgroup: Option<&Cgroup>) -> u64 {
        let events = match self.groups.of(Controller::Pids) {
            Some(group) => files::read(group.dir(), "pids.events"),
            None => cgroup.map_or(Ok(String::new()), |cgroup| cgroup.read("pids.events")),
        };
        events.ok().and_then(|text| files::value(&text, "max")).unwrap_or(0)
    }
}

impl TreeMeter for Meter {
    fn begin(&self, tree: SampledTree) {
        if let Some(sampler) = &self.sampler {
            sampler.begin(tree);
        }
    }

    fn group_paths(&self) -> Vec<CString> {
        self.groups.paths()
    }

    fn resources(&self, cgroup: Option<&Cgroup>) -> TreeResources {
        let usage = self.usage(cgroup);
        let out_of_memory = self.kills(cgroup).map(|(Kills { count, limit }, peak_bytes, name)| {
            let killed = u32::try_from(count).unwrap_or(u32::MAX);
            let logged = kernel_log::kill_in(&name);
            let limit = match (limit, logged) {
                // The limit is outside of the groups that can be seen from here.
                (MemoryLimit::Machine, Some(LoggedKill { is_of_machine: false, .. })) => {
                    MemoryLimit::OfAncestor(None)
                }
                (limit, _) => limit,
            };
            let victim = logged.map(|logged| logged.victim);
            OutOfMemory { limit, peak_bytes, victim, killed, peak_pids: usage.peak_pids }
        });
        let sampled = self.sampler.as_ref().and_then(Sampler::out_of_memory);
        let out_of_memory = out_of_memory.or(sampled);
        let refused_starts = self.refused_starts(cgroup);
        TreeResources { held: self.held.clone(), usage, out_of_memory, refused_starts }
    }
}
