//! The figures of the groups of a tree.

use std::ffi::CString;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::controller::Controller;
use super::files::{self, OpenFiles};
use super::kernel_log::{self, LoggedKill};
use super::oom::{self, Kills};
use super::place::LimitedPlace;
use super::sampled::{SampledTree, Sampler};
use super::v1::{V1Group, V1Groups};
use super::{v1, v2};
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
    /// The files that stay open; `None` if the groups are for one tree only.
    open: Option<OpenFiles>,
}

/// The figures of the groups at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    pub(super) usage: TreeUsage,
    pub(super) killed: Option<Killed>,
    pub(super) refused_starts: u64,
}

/// The kills for lack of memory.
#[derive(Debug, Clone)]
pub(super) struct Killed {
    kills: Kills,
    peak_bytes: Option<u64>,
    /// The name of the group, by which the kernel's log names the victim.
    group: String,
}

/// The file of the largest amount of memory that a group of version 1 has used.
pub(super) const V1_PEAK: &str = "memory.max_usage_in_bytes";

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
        Meter { held, groups, around, sampler, open: None }
    }

    /// Returns the name of the mechanism that holds the limits.
    pub(super) fn mechanism(&self) -> String {
        self.held.mechanism.map(|it| it.to_string()).unwrap_or_default()
    }

    /// Keeps files open that have been read.
    pub(super) fn keep_open(&mut self) {
        self.open = Some(OpenFiles::default());
    }

    /// Reads a file of a group; an empty text if there is none.
    fn read(&self, dir: BorrowedFd<'_>, file: &'static str) -> String {
        let read = match &self.open {
            Some(open) => open.with(dir, file, files::read_open),
            None => files::read(dir, file),
        };
        read.unwrap_or_default()
    }

    /// Returns the number in a file of a group.
    pub(super) fn number(&self, dir: BorrowedFd<'_>, file: &'static str) -> Option<u64> {
        files::number_of(&self.read(dir, file))
    }

    /// Writes to a file of a group.
    pub(super) fn write(
        &self,
        dir: BorrowedFd<'_>,
        file: &'static str,
        text: &str,
    ) -> io::Result<()> {
        match &self.open {
            Some(open) => open.with(dir, file, |file| {
                Ok(rustix::io::pwrite(file, text.as_bytes(), 0).map(drop)?)
            }),
            None => files::write(dir, file, text),
        }
    }

    /// Reads all settings of the groups that a tree could have changed, and that the next tree would see.
    pub(super) fn settings(&self, cgroup: Option<&Cgroup>) -> Vec<String> {
        let of_cgroup = cgroup
            .into_iter()
            .flat_map(|cgroup| v2::SETTINGS.iter().map(move |file| (cgroup.dir(), *file)));
        let of_groups = self.groups.iter().flat_map(|group| {
            group.controllers.iter().flat_map(move |controller| {
                v1::settings_of(controller).iter().map(move |file| (group.dir(), *file))
            })
        });
        of_cgroup.chain(of_groups).map(|(dir, file)| self.read(dir, file)).collect()
    }

    pub(super) fn groups(&self) -> &V1Groups {
        &self.groups
    }

    /// Returns true if nothing but looks at the memory limits it.
    pub(super) fn is_sampled(&self) -> bool {
        self.sampler.is_some()
    }

    /// Returns true if no group around them was out of memory since they were made: that would be taken for the reason of a
    /// later kill.
    pub(super) fn ancestors_had_memory(&self) -> bool {
        self.around.iter().all(|(place, counts)| {
            place.ancestors.iter().zip(counts).all(|(ancestor, before)| ancestor.ooms() == *before)
        })
    }

    fn kills(&self, cgroup: Option<&Cgroup>) -> Option<Killed> {
        let limit = self.held.limits.memory_max_bytes;
        if let Some(group) = self.groups.of(Controller::Memory) {
            let control = self.read(group.dir(), "memory.oom_control");
            let kills = oom::in_v1(group, &control, limit)?;
            let peak_bytes = self.number(group.dir(), V1_PEAK);
            return Some(Killed { kills, peak_bytes, group: group.name() });
        }
        let cgroup = cgroup?;
        let ancestors: Vec<_> = match &self.around {
            Some((place, counts)) => place.ancestors.iter().zip(counts.iter().copied()).collect(),
            None => Vec::new(),
        };
        let events = self.read(cgroup.dir(), "memory.events");
        let kills = oom::in_v2(cgroup, &events, limit, &ancestors)?;
        let peak_bytes = self.number(cgroup.dir(), "memory.peak");
        Some(Killed { kills, peak_bytes, group: cgroup.name().to_string_lossy().into_owned() })
    }

    fn usage(&self, cgroup: Option<&Cgroup>) -> TreeUsage {
        let mut usage = TreeUsage::default();
        if let Some(cgroup) = cgroup {
            let read = |file| self.read(cgroup.dir(), file);
            let stat = read("cpu.stat");
            let micros = |key| files::value(&stat, key).map(Duration::from_micros);
            usage.user = micros("user_usec");
            usage.system = micros("system_usec");
            usage.memory_stall = files::stalled(&read("memory.pressure"));
            usage.cpu_stall = files::stalled(&read("cpu.pressure"));
            usage.io_stall = files::stalled(&read("io.pressure"));
        }
        if let Some(group) = self.groups.of(Controller::Memory) {
            usage.peak_memory_bytes = self.number(group.dir(), V1_PEAK);
        } else if let Some(cgroup) = cgroup {
            usage.peak_memory_bytes = self.number(cgroup.dir(), "memory.peak");
        }
        if let Some(peak) = self.sampler.as_ref().and_then(Sampler::peak_bytes) {
            usage.peak_memory_bytes = Some(peak);
        }
        if let Some(group) = self.groups.of(Controller::Pids) {
            usage.peak_pids = self.number(group.dir(), "pids.peak");
        } else if let Some(cgroup) = cgroup {
            usage.peak_pids = self.number(cgroup.dir(), "pids.peak");
        }
        usage
    }

    /// Returns how many starts of processes and threads the limit on their number has refused.
    fn refused_starts(&self, cgroup: Option<&Cgroup>) -> u64 {
        if self.held.limits.pids_max.is_none() {
            return 0;
        }
        let dir = self.groups.of(Controller::Pids).map(V1Group::dir).or(cgroup.map(Cgroup::dir));
        dir.and_then(|dir| files::value(&self.read(dir, "pids.events"), "max")).unwrap_or(0)
    }

    /// Reads the figures of the groups.
    pub(super) fn figures(&self, cgroup: Option<&Cgroup>) -> Figures {
        Figures {
            usage: self.usage(cgroup),
            killed: self.kills(cgroup),
            refused_starts: self.refused_starts(cgroup),
        }
    }

    /// Returns the resources that figures stand for.
    pub(super) fn explain(&self, figures: Figures) -> TreeResources {
        let Figures { usage, killed, refused_starts } = figures;
        let out_of_memory = killed.map(|Killed { kills, peak_bytes, group }| {
            let killed = u32::try_from(kills.count).unwrap_or(u32::MAX);
            let logged = kernel_log::kill_in(&group);
            let limit = match (kills.limit, logged) {
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
        TreeResources { held: self.held.clone(), usage, out_of_memory, refused_starts }
    }
}

impl Figures {
    /// Returns the figures without those at an earlier time. The peaks are kept.
    pub(super) fn since(mut self, before: &Figures) -> Figures {
        let TreeUsage { user, system, memory_stall, cpu_stall, io_stall, .. } = &mut self.usage;
        let usage = &before.usage;
        for (time, before) in [
            (user, usage.user),
            (system, usage.system),
            (memory_stall, usage.memory_stall),
            (cpu_stall, usage.cpu_stall),
            (io_stall, usage.io_stall),
        ] {
            *time = time.map(|time| time.saturating_sub(before.unwrap_or_default()));
        }
        self.refused_starts = self.refused_starts.saturating_sub(before.refused_starts);
        self
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
        self.explain(self.figures(cgroup))
    }
}
