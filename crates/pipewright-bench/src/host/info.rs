//! The description of the machine in a report.

use pipewright_os::{base::cpu, host::host_info};
use serde::{Deserialize, Serialize};

use super::placement;
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
        processors: processors(),
        governor: found.governor,
        quota_processors: found.quota_processors,
        virtual_machine: found.virtual_machine,
        not_pinned: placement::reason_not_pinned(),
        imitation: found.imitation,
        memory_bytes: found.memory_bytes,
        load_before: host_info::load(),
        ..HostReport::default()
    }
}

/// Returns the number of processors that this process may use.
fn processors() -> usize {
    match cpu::allowed() {
        Ok(allowed) => allowed.len(),
        Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
    }
}
