//! The machine: its description, its processors and the CPU time that other processes use.

use std::time::Instant;
use std::{io, thread};

use pipewright_os::base::cpu;
use pipewright_os::host::host_info::{self, CpuTime};
use serde::{Deserialize, Serialize};

use crate::options::Placement;
use crate::units::bytes;

/// The machine, and its state during a measurement. What the system does not tell is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostReport {
    /// The name and version of the system.
    pub system: Option<String>,
    /// The version of the kernel.
    pub kernel: Option<String>,
    /// The model of the processors.
    pub processor: Option<String>,
    /// The number of processors that this process may use.
    pub processors: usize,
    /// The frequency governor, such as `performance` or `powersave`.
    pub governor: Option<String>,
    /// The CPU quota of the control groups, in processors.
    pub quota_processors: Option<f64>,
    /// The kind of virtual machine, or `yes`.
    pub virtual_machine: Option<String>,
    /// The reason why threads cannot be pinned to different cores.
    #[serde(default)]
    pub not_pinned: Option<String>,
    /// True under Wine, whose speed says nothing about Windows.
    pub imitation: bool,
    /// The memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// The load average before the first measurement.
    pub load_before: Option<f64>,
    /// The load average after the last measurement.
    pub load_after: Option<f64>,
    /// The share of all CPU time that other processes used, in each series; empty where the system does not tell.
    #[serde(default)]
    pub others_share: Vec<f64>,
    /// The baseline of copies: the median of each series. Its spread is the machine's own drift.
    pub yardstick_bytes_per_second: Vec<f64>,
    /// The baseline of wake-ups: a byte to another thread and back. Older reports have none.
    #[serde(default)]
    pub yardstick_wake_seconds: Vec<f64>,
    /// The program that bare starts run. Older reports have none.
    #[serde(default)]
    pub bare_start_program: Option<String>,
}

impl HostReport {
    /// Returns the machine in a line: system, kernel, processors, memory, virtual machine.
    #[must_use]
    pub fn line(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.system.clone());
        parts.extend(self.kernel.as_ref().map(|kernel| format!("kernel {kernel}")));
        parts.extend(self.processor.clone());
        let count = self.processors;
        parts.push(if count == 1 {
            "1 processor".to_owned()
        } else {
            format!("{count} processors")
        });
        let memory = self.memory_bytes.map(|memory| memory.next_multiple_of(1 << 30));
        parts.extend(memory.map(|memory| format!("{} memory", bytes(memory))));
        parts.extend(self.virtual_machine.as_ref().map(|kind| match kind.as_str() {
            "yes" => "virtual machine".to_owned(),
            kind => format!("virtual machine ({kind})"),
        }));
        parts.join(", ")
    }
}

/// Describes the machine, before the first measurement.
#[must_use]
pub fn look() -> HostReport {
    let found = host_info::look();
    HostReport {
        system: found.system,
        kernel: found.kernel,
        processor: found.processor,
        processors: count_processors(),
        governor: found.governor,
        quota_processors: found.quota_processors,
        virtual_machine: found.virtual_machine,
        not_pinned: reason_not_pinned(),
        imitation: found.imitation,
        memory_bytes: found.memory_bytes,
        load_before: host_info::load(),
        ..HostReport::default()
    }
}

/// Returns the number of processors that this process may use.
fn count_processors() -> usize {
    match cpu::allowed() {
        Ok(allowed) => allowed.len(),
        Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// The processors of reader and writer. `None`: not pinned.
///
/// The placement changes figures by up to six times, so every report states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Processors {
    pub(crate) reader: Option<usize>,
    pub(crate) writer: Option<usize>,
}

/// Returns the processors for that placement after pinning threads to them once, or the reason why that failed.
pub(crate) fn processors(placement: Placement) -> Result<Processors, String> {
    let allowed = cpu::allowed().unwrap_or_default();
    let chosen = choose(placement, &allowed, cpu::same_core)?;
    // A seccomp filter may refuse the call. A separate thread, because a thread keeps its processor until it ends.
    let tried = thread::spawn(move || pin(chosen.reader).and_then(|()| pin(chosen.writer)));
    let pinned = tried.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
    pinned.map(|()| chosen).map_err(|error| error.to_string())
}

/// Returns the placement for benchmarks that do not ask for one: different cores, or unpinned where that fails.
pub(crate) fn default_placement() -> Placement {
    if processors(Placement::Other).is_ok() { Placement::Other } else { Placement::None }
}

/// Returns the processors of that placement.
pub(crate) fn default_processors() -> Processors {
    processors(default_placement()).unwrap_or_default()
}

/// Returns the reason why reader and writer cannot be on different cores.
fn reason_not_pinned() -> Option<String> {
    processors(Placement::Other).err()
}

/// Pins this thread to a processor; does nothing for `None`.
pub(crate) fn pin(processor: Option<usize>) -> io::Result<()> {
    let Some(processor) = processor else { return Ok(()) };
    cpu::pin_this_thread(processor).map_err(|error| {
        let words = format!("cannot pin a thread to processor {processor}: {error}");
        io::Error::new(error.kind(), words)
    })
}

/// Chooses among the allowed processors.
fn choose(
    placement: Placement,
    allowed: &[usize],
    same_core: impl Fn(usize) -> Option<Vec<usize>>,
) -> Result<Processors, &'static str> {
    let Some(&writer) = allowed.first() else {
        return if placement == Placement::None {
            Ok(Processors::default())
        } else {
            Err("this system cannot pin threads to processors")
        };
    };
    let core = same_core(writer);
    let in_core = |processor: &usize| core.as_ref().is_some_and(|core| core.contains(processor));
    let others = || allowed.iter().copied().filter(|processor| *processor != writer);
    let reader = match placement {
        Placement::None => return Ok(Processors::default()),
        Placement::Same => Some(writer),
        Placement::Sibling => others().find(in_core),
        Placement::Other => others().find(|processor| !in_core(processor)),
    };
    match reader {
        Some(reader) => Ok(Processors { reader: Some(reader), writer: Some(writer) }),
        None if placement == Placement::Sibling => Err("no available core has two processors"),
        None if allowed.len() == 1 => Err("only one processor is available"),
        None => Err("only one core is available"),
    }
}

/// The start of a measurement during which other processes are to be noticed.
#[derive(Debug, Clone, Copy)]
pub struct CpuUse {
    start: Instant,
    before: CpuTime,
}

impl CpuUse {
    /// Starts to count; `None` where the system does not tell.
    ///
    /// # Platform
    /// Linux: `/proc/stat` and `/proc/self/stat`, in steps of 10 ms. Elsewhere always `None`.
    #[must_use]
    pub fn start() -> Option<CpuUse> {
        Some(CpuUse { start: Instant::now(), before: host_info::cpu_time()? })
    }

    /// Returns the share of all CPU time since the start that other processes used, from 0 to 1.
    #[must_use]
    pub fn others_share(&self) -> Option<f64> {
        Some(share(self.before, host_info::cpu_time()?))
    }

    /// Returns the number of processors that other processes kept busy since the start: 0.1 is a tenth of one.
    #[must_use]
    pub fn others_processors(&self) -> Option<f64> {
        let others = host_info::cpu_time()?.others.saturating_sub(self.before.others);
        Some(others.as_secs_f64() / self.start.elapsed().as_secs_f64().max(1e-9))
    }
}

fn share(before: CpuTime, after: CpuTime) -> f64 {
    let all = after.all.saturating_sub(before.all).as_secs_f64();
    let others = after.others.saturating_sub(before.others).as_secs_f64();
    if all > 0.0 { (others / all).min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processors a core.
    fn pairs(processor: usize) -> Option<Vec<usize>> {
        Some(vec![processor & !1, processor | 1])
    }

    #[test]
    fn processors_are_chosen_among_those_that_are_allowed() {
        let choose_pair = |placement: Placement, allowed: &[usize]| {
            choose(placement, allowed, pairs).map(|it| (it.writer, it.reader))
        };
        assert_eq!(choose_pair(Placement::Other, &[2, 3, 4, 5]), Ok((Some(2), Some(4))));
        assert_eq!(choose_pair(Placement::Sibling, &[2, 3, 4, 5]), Ok((Some(2), Some(3))));
        assert_eq!(choose_pair(Placement::Same, &[2, 3]), Ok((Some(2), Some(2))));
        assert_eq!(choose_pair(Placement::None, &[2, 3]), Ok((None, None)));
        assert_eq!(choose_pair(Placement::Other, &[3]), Err("only one processor is available"));
        assert_eq!(choose_pair(Placement::Other, &[2, 3]), Err("only one core is available"));
        assert!(choose_pair(Placement::Sibling, &[3, 4]).is_err());
        // macOS.
        assert_eq!(choose_pair(Placement::None, &[]), Ok((None, None)));
        assert!(choose_pair(Placement::Same, &[]).is_err());
        // Where the cores are unknown, each processor counts as one.
        let unknown = choose(Placement::Other, &[0, 1], |_| None);
        assert_eq!(unknown, Ok(Processors { reader: Some(1), writer: Some(0) }));
    }

    #[test]
    fn the_use_by_others_is_a_share_where_the_system_tells_it() {
        let start = CpuUse::start();
        assert_eq!(start.is_some(), cfg!(target_os = "linux"));
        let Some(start) = start else { return };
        assert!(start.others_share().is_some_and(|share| (0.0..=1.0).contains(&share)));
        assert!(start.others_processors().is_some_and(|count| count >= 0.0));
    }
}
