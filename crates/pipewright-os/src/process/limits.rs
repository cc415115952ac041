//! Limits on the resources of a whole process tree, and the reasons why a tree ran out of memory: plain data.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::base::error::{OneLine, Quoted};
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
    /// Looks at the memory of the processes from time to time; the tree is killed when they use too much (Linux). Only
    /// with [`TreeLimits::best_effort`].
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
    /// The reason why the limit on memory is only looked after from time to time, if it is: between two looks the tree
    /// can use more. Only with [`TreeLimits::best_effort`].
    pub sampled: Option<LimitUnavailable>,
    /// The limits that could not be held, with the reasons.
    pub missing: Vec<MissingLimit>,
}

impl HeldLimits {
    /// Returns true if a limit was asked for, in force or not.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        self.mechanism.is_some() || !self.missing.is_empty()
    }
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

    /// Limits the memory, in bytes. Swap is not part of it. If the tree needs more, the kernel kills a process of it,
    /// and the run ends as out of memory.
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

    /// Limits the CPU time to that of `processors`; 0.5 is half of one. At least 0.01.
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

impl LimitMechanism {
    /// Returns the words for it in reports and in Python. They never change.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LimitMechanism::CgroupV2 => "cgroup v2",
            LimitMechanism::CgroupV1 => "cgroup v1",
            LimitMechanism::Job => "job",
            LimitMechanism::Sampled => "sampled",
        }
    }
}

impl fmt::Display for LimitMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The reason why a limit cannot be held here, and what would help.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitUnavailable {
    /// The limit.
    pub limit: LimitKind,
    /// The reason.
    pub reason: String,
    /// The command or the setting that would help, if one is known.
    pub remedy: Option<String>,
}

/// A limit that was asked for and is not in force.
pub type MissingLimit = LimitUnavailable;

impl LimitUnavailable {
    pub(crate) fn new(limit: LimitKind, reason: impl Into<String>) -> LimitUnavailable {
        LimitUnavailable { limit, reason: reason.into(), remedy: None }
    }
}

impl fmt::Display for LimitUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be held: {}", self.limit, OneLine(&self.reason))?;
        match &self.remedy {
            Some(remedy) => write!(f, "; try: {}", OneLine(remedy)),
            None => Ok(()),
        }
    }
}

impl Error for LimitUnavailable {}

/// The reason why the kernel killed a process of a tree for lack of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The limit that was reached.
    pub limit: MemoryLimit,
    /// The largest amount of memory that the tree used at one time, in bytes, if it is known.
    pub peak_bytes: Option<u64>,
    /// The killed process, if it is known; the last one if there were several.
    pub victim: Option<Victim>,
    /// The number of killed processes.
    pub killed: u32,
    /// The largest number of processes and threads in the tree at one time, if it is known.
    pub peak_pids: Option<u64>,
}

/// The limit that was reached when a process was killed for lack of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryLimit {
    /// The limit of the command, in bytes.
    OfCommand(u64),
    /// The limit of a group that the command's process tree is in, such as a container, and its bytes if they are
    /// known.
    OfAncestor(Option<u64>),
    /// A limit that the command set for a part of its own tree.
    OfDescendant,
    /// The memory of the whole machine, or a limit that cannot be seen from here.
    Machine,
}

impl MemoryLimit {
    /// Returns the word for it in reports and in Python. A word never changes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MemoryLimit::OfCommand(_) => "command",
            MemoryLimit::OfAncestor(_) => "ancestor",
            MemoryLimit::OfDescendant => "descendant",
            MemoryLimit::Machine => "machine",
        }
    }

    /// Returns the number of bytes of the limit, if it is known.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        match self {
            MemoryLimit::OfCommand(bytes) => Some(bytes),
            MemoryLimit::OfAncestor(bytes) => bytes,
            MemoryLimit::OfDescendant | MemoryLimit::Machine => None,
        }
    }
}

/// A process that the kernel killed for lack of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Victim {
    pid: u32,
    /// The name, as the kernel keeps it: 15 bytes and a NUL.
    name: [u8; Victim::NAME_BYTES],
}

impl Victim {
    /// The number of bytes that the kernel keeps of a name (`TASK_COMM_LEN`), the NUL included.
    const NAME_BYTES: usize = 16;

    /// Creates a victim. The name is cut as the kernel cuts it.
    #[must_use]
    pub fn new(pid: u32, name: &str) -> Victim {
        let mut end = name.len().min(Victim::NAME_BYTES - 1);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; Victim::NAME_BYTES];
        for (place, byte) in bytes.iter_mut().zip(name.as_bytes().iter().take(end)) {
            *place = *byte;
        }
        Victim { pid, name: bytes }
    }

    /// Returns its process id, as the kernel's log has it: in the first pid namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns its name, at most 15 bytes of it.
    #[must_use]
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        std::str::from_utf8(self.name.get(..end).unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Debug for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Victim").field("pid", &self.pid).field("name", &self.name()).finish()
    }
}

/// A number of bytes in the unit that people use: `2 GiB`, `1.5 MiB`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] =
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match UNITS.iter().find(|(_, unit)| self.0 >= *unit) {
            Some((name, unit)) if self.0 % unit == 0 => write!(f, "{} {name}", self.0 / unit),
            // In whole numbers: the code that formats fractions is 20 KB, and each program with a `Command` would have
            // it.
            Some((name, unit)) => {
                let tenths = self.0 / unit * 10 + (self.0 % unit * 10 + unit / 2) / unit;
                write!(f, "{}.{} {name}", tenths / 10, tenths % 10)
            }
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryLimit::OfCommand(bytes) => write!(f, "its memory limit of {}", Bytes(*bytes)),
            MemoryLimit::OfAncestor(Some(bytes)) => {
                write!(f, "the memory limit of {} of the group around it", Bytes(*bytes))
            }
            MemoryLimit::OfAncestor(None) => f.write_str("the memory limit of the group around it"),
            MemoryLimit::OfDescendant => f.write_str("a memory limit that it set itself"),
            MemoryLimit::Machine => f.write_str("the memory of this machine"),
        }
    }
}

impl fmt::Display for OutOfMemory {
    /// Writes the victim and the reason: `"cc1plus" was killed: over its memory limit of 2 GiB (peak 2.0 GiB, tree of
    /// 14)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.victim {
            Some(victim) => write!(f, "{}", Quoted(victim.name().as_ref()))?,
            None if self.killed > 1 => f.write_str("processes")?,
            None => f.write_str("a process")?,
        }
        let was = if self.victim.is_none() && self.killed > 1 { "were" } else { "was" };
        write!(f, " {was} killed: over {}", self.limit)?;
        match (self.peak_bytes, self.peak_pids) {
            (Some(peak), Some(pids)) => write!(f, " (peak {}, tree of {pids})", Bytes(peak)),
            (Some(peak), None) => write!(f, " (peak {})", Bytes(peak)),
            (None, Some(pids)) => write!(f, " (tree of {pids})"),
            (None, None) => Ok(()),
        }
    }
}

// The figures that a job of Windows takes and keeps.
#[cfg(any(windows, test))]
pub(crate) mod job {
    use std::time::Duration;

    /// The pages in which the kernel keeps a limit on memory.
    const PAGE_BYTES: u64 = 4096;

    /// The rate of all processors together.
    const ALL: f64 = 10_000.0;

    /// Returns the largest limit on memory that the kernel keeps and that is no higher. A limit below one page is one
    /// page: 0 would be none.
    pub(crate) fn kept_memory(bytes: u64) -> u64 {
        (bytes / PAGE_BYTES).max(1) * PAGE_BYTES
    }

    /// Returns the rate of a job that gets that time in one second, of all the processors of the machine.
    pub(crate) fn cpu_rate(time_per_second: Duration, processors: usize) -> u32 {
        #[expect(clippy::cast_precision_loss, reason = "a few processors")]
        let processors = processors.max(1) as f64;
        let rate = (time_per_second.as_secs_f64() / processors * ALL).clamp(1.0, ALL);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in 1..=10000")]
        let rate = rate as u32;
        rate
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_limit_on_memory_is_whole_pages_and_never_higher() {
            for (asked, kept) in [
                (2_000_000_000, 1_999_998_976),
                (256 << 20, 256 << 20),
                (4097, 4096),
                (1, 4096),
                (0, 4096),
                (u64::MAX, u64::MAX - 4095),
            ] {
                assert_eq!(kept_memory(asked), kept, "{asked}");
            }
        }

        #[test]
        fn a_rate_counts_the_processors_of_all_groups() {
            let second = Duration::from_secs(1);
            for (time, processors, rate) in [
                (second, 1, 10_000),
                (second, 128, 78),
                (second * 64, 128, 5_000),
                (second * 9, 4, 10_000),
            ] {
                assert_eq!(cpu_rate(time, processors), rate, "{time:?} of {processors}");
            }
            assert_eq!(cpu_rate(Duration::from_micros(1), 1024), 1, "no rate is no limit");
            assert_eq!(cpu_rate(Duration::MAX, 0), 10_000);
        }
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

    #[test]
    fn a_name_is_cut_as_the_kernel_cuts_it() {
        assert_eq!(Victim::new(7, "cc1plus").name(), "cc1plus");
        assert_eq!(Victim::new(7, "a-very-long-name-of-a-program").name(), "a-very-long-nam");
        assert_eq!(Victim::new(7, "123456789012345é").name(), "123456789012345");
        assert_eq!(Victim::new(7, "12345678901234é").name(), "12345678901234");
        assert_eq!(Victim::new(7, "").name(), "");
    }

    #[test]
    fn bytes_print_in_the_unit_that_people_use() {
        let shown = |bytes| Bytes(bytes).to_string();
        assert_eq!(shown(2 << 30), "2 GiB");
        assert_eq!(shown(3 << 19), "1.5 MiB");
        assert_eq!(shown((2 << 30) - 1), "2.0 GiB");
        assert_eq!(shown(u64::MAX), "16777216.0 TiB");
        assert_eq!(shown(1000), "1000 bytes");
        let oom = OutOfMemory {
            limit: MemoryLimit::OfCommand(2 << 30),
            peak_bytes: Some((2 << 30) - 4096),
            victim: None,
            killed: 1,
            peak_pids: Some(14),
        };
        let reason = "over its memory limit of 2 GiB (peak 2.0 GiB, tree of 14)";
        assert_eq!(oom.to_string(), format!("a process was killed: {reason}"));
        let victim = Some(Victim::new(7, "cc1plus"));
        let named = OutOfMemory { victim, ..oom };
        assert_eq!(named.to_string(), format!("\"cc1plus\" was killed: {reason}"));
    }
}
