//! The groups of a slot, which hold the limits of one tree after another.
//!
//! To make and to remove groups takes the kernel longer than to start a program. So the groups of a tree are used
//! again, unless the next one could see that: by another limit or setting, memory that is still counted, or a peak that
//! cannot be reset.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use rustix::fs::OFlags;

use super::Controller;
use super::groups::V1Group;
use super::meter::{Figures, Meter, V1_PEAK};
use super::{LimitedGroups, NotLimited, files, groups};
use crate::process::contain::linux::cgroup::Cgroup;
use crate::process::limits::{TreeLimits, TreeResources};

/// The groups of a slot's trees. A trait object, so that programs without limits do not contain its code.
pub(crate) trait KeptGroups: fmt::Debug + Send + Sync {
    /// Makes them ready for the next tree, if possible. No process may be in them.
    fn renew(&self, limits: &TreeLimits) -> Renewal;

    /// Returns the files by which a command joins them.
    fn joins(&self) -> Joins<'_>;

    /// Returns the names by which a supervisor removes them.
    fn names(&self) -> GroupNames;

    fn cgroup(&self) -> Option<&Cgroup>;

    /// Returns the resources that the current tree has used so far.
    fn resources(&self) -> TreeResources;

    /// Returns the resources of the current tree, which has ended.
    fn last_resources(&self) -> TreeResources;
}

/// The files by which a command joins groups.
pub(crate) struct Joins<'a> {
    /// The cgroup, and its `cgroup.procs`.
    pub(crate) cgroup: Option<[BorrowedFd<'a>; 2]>,
    /// The `cgroup.procs` of the groups of version 1.
    pub(crate) v1: Vec<BorrowedFd<'a>>,
}

/// The result of [`KeptGroups::renew`].
pub(crate) enum Renewal {
    /// The next tree can use them.
    Ready,
    /// It needs other groups, with this name, and with these settings if they are known.
    Remake { name: String, settings: Option<Vec<String>> },
    /// It needs groups with another name: the kernel's log names victims by the name of their group.
    Rename,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GroupNames {
    pub(crate) cgroup: Option<CString>,
    /// The paths of those of version 1.
    pub(crate) paths: Vec<CString>,
}

#[derive(Debug)]
struct Kept {
    asked: TreeLimits,
    name: String,
    /// The settings, as the kernel has them. A tree may be able to change them.
    settings: Vec<String>,
    cgroup: Option<(Cgroup, OwnedFd)>,
    /// The files by which a command joins those of version 1.
    v1_procs: Vec<OwnedFd>,
    meter: Meter,
    /// `memory.peak`, opened and reset for the current tree: the kernel keeps a peak for each such handle (Linux 6.12).
    peak: Option<OwnedFd>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The figures at the start of the current tree.
    before: Figures,
    /// Those at its end.
    after: Option<Figures>,
}

/// Returns groups for the next tree of a slot: those of the last one, or others.
pub(crate) fn keep(
    limits: TreeLimits,
    last: Option<Arc<dyn KeptGroups>>,
) -> Result<Arc<dyn KeptGroups>, NotLimited> {
    let mut remade = None;
    if let Some(last) = last {
        match last.renew(&limits) {
            Renewal::Ready => return Ok(last),
            // Its drop removes them first: both together could be too many.
            Renewal::Remake { name, settings } if Arc::strong_count(&last) == 1 => {
                remade = Some((name, settings, last.names()));
            }
            Renewal::Remake { .. } | Renewal::Rename => {}
        }
    }
    if let Some((name, settings, names)) = remade {
        let kept = Kept::new(limits, name, settings).ok();
        // A supervisor that knows only some of them would remove those when it is replaced.
        if let Some(kept) = kept.filter(|kept| kept.names() == names) {
            return Ok(Arc::new(kept));
        }
    }
    Ok(Arc::new(Kept::new(limits, groups::unique_name(), None)?))
}

impl Kept {
    /// Makes groups. Those made before with the same limits had these settings.
    fn new(
        limits: TreeLimits,
        name: String,
        settings: Option<Vec<String>>,
    ) -> Result<Kept, NotLimited> {
        let groups = LimitedGroups::named(limits, &name)?;
        let LimitedGroups { cgroup, limit_procs: v1_procs, mut meter } = groups;
        if meter.is_sampled() {
            // Its thread looks at one tree, and kills what the supervisor has.
            return Err(NotLimited::System(io::ErrorKind::Unsupported.into()));
        }
        let peak = cgroup.as_ref().and_then(|cgroup| {
            let file = files::open(cgroup.dir(), "memory.peak", OFlags::RDWR).ok()?;
            reset(&file).then_some(file)
        });
        meter.keep_open();
        let settings = settings.unwrap_or_else(|| meter.settings(cgroup.as_ref()));
        let (asked, state) = (limits, Mutex::default());
        let procs = cgroup.as_ref().map(Cgroup::procs).transpose()?;
        let cgroup = cgroup.zip(procs);
        Ok(Kept { asked, name, settings, cgroup, v1_procs, meter, peak, state })
    }

    /// Reads the figures so far, since the groups were made.
    fn figures(&self) -> Figures {
        let mut figures = self.meter.figures(self.cgroup());
        if let Some(peak) = &self.peak {
            let text = files::read_open(peak.as_fd());
            figures.usage.peak_memory_bytes = text.ok().and_then(|text| files::number_of(&text));
        }
        figures
    }

    /// Returns true if a process was killed in them, or could have been.
    fn had_no_memory(&self, last: &Figures) -> bool {
        let group = self.meter.groups().of(Controller::Memory);
        last.killed.is_some() || group.is_some_and(V1Group::was_out_of_memory)
    }

    /// Returns true if the next tree cannot tell that the last one has been here.
    fn is_as_new(&self, last: &Figures) -> bool {
        // This peak cannot be reset. Every tree has one process.
        last.usage.peak_pids.is_none_or(|peak| peak <= 1)
            && self.has_no_groups()
            && self.meter.ancestors_had_memory()
            && self.meter.settings(self.cgroup()) == self.settings
            && self.reset_memory()
    }

    /// Returns true if no tree has made a group in them.
    fn has_no_groups(&self) -> bool {
        // Itself, and the entry in the directory above it.
        const OF_EMPTY: usize = 2;
        let is_empty = |dir: BorrowedFd<'_>| {
            rustix::fs::fstat(dir).is_ok_and(|stat| usize::try_from(stat.st_nlink) == Ok(OF_EMPTY))
        };
        self.meter.groups().iter().map(V1Group::dir).all(is_empty)
            && self.cgroup().map(Cgroup::dir).is_none_or(is_empty)
    }

    /// Resets the peak of the memory. Returns false if that is not possible, or if memory of the last tree is still
    /// counted.
    fn reset_memory(&self) -> bool {
        // The kernel counts 64 pages at a time for each processor, so the figures of a new group are no more exact.
        const COUNTED_BYTES: u64 = 1 << 20;
        let meter = &self.meter;
        let is_small = |dir, file| meter.number(dir, file).is_some_and(|it| it < COUNTED_BYTES);
        if let Some(group) = meter.groups().of(Controller::Memory) {
            let reset = |file| meter.write(group.dir(), file, "0").is_ok();
            return is_small(group.dir(), "memory.usage_in_bytes")
                && [V1_PEAK, "memory.failcnt"].into_iter().all(reset)
                // Without swap accounting there is neither.
                && ["memory.memsw.max_usage_in_bytes", "memory.memsw.failcnt"].into_iter().all(|file| {
                    meter.number(group.dir(), file).is_none_or(|count| count == 0) || reset(file)
                });
        }
        match (&self.peak, self.cgroup()) {
            (Some(peak), Some(cgroup)) => is_small(cgroup.dir(), "memory.current") && reset(peak),
            (None, Some(cgroup)) => {
                files::open(cgroup.dir(), "memory.peak", OFlags::RDONLY).is_err()
            }
            (_, None) => true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each field is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptGroups for Kept {
    fn renew(&self, limits: &TreeLimits) -> Renewal {
        let mut state = self.lock();
        let last = state.after.take().unwrap_or_else(|| self.figures());
        if self.had_no_memory(&last) {
            return Renewal::Rename;
        }
        let has_same_limits = *limits == self.asked;
        if !has_same_limits || !self.is_as_new(&last) {
            let settings = has_same_limits.then(|| self.settings.clone());
            return Renewal::Remake { name: self.name.clone(), settings };
        }
        state.before = last;
        Renewal::Ready
    }

    fn joins(&self) -> Joins<'_> {
        let cgroup = self.cgroup.as_ref();
        Joins {
            cgroup: cgroup.map(|(cgroup, procs)| [cgroup.dir(), procs.as_fd()]),
            v1: self.v1_procs.iter().map(AsFd::as_fd).collect(),
        }
    }

    fn names(&self) -> GroupNames {
        let cgroup = self.cgroup().map(|cgroup| cgroup.name().clone());
        GroupNames { cgroup, paths: self.meter.groups().paths() }
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref().map(|(cgroup, _)| cgroup)
    }

    fn resources(&self) -> TreeResources {
        self.meter.explain(self.figures().since(&self.lock().before))
    }

    fn last_resources(&self) -> TreeResources {
        let mut state = self.lock();
        let figures = self.figures();
        state.after = Some(figures.clone());
        self.meter.explain(figures.since(&state.before))
    }
}

/// Resets the peak for that handle. Returns false before Linux 6.12.
fn reset(peak: &OwnedFd) -> bool {
    rustix::io::write(peak, b"reset").is_ok()
}
