//! Where it was measured, for the report.

use pipewright_os::host::host_info::CpuTime;
use pipewright_os::{base::cpu, host::host_info};

use super::pipes;
use super::report::Machine;
use super::yardstick;

/// Looks at the machine before the first measurement.
pub(super) fn look() -> Machine {
    let found = host_info::look();
    Machine {
        system: found.system,
        kernel: found.kernel,
        processor: found.processor,
        processors: processors(),
        governor: found.governor,
        quota_processors: found.quota_processors,
        virtual_machine: found.virtual_machine,
        not_pinned: pipes::why_not_pinned(),
        imitation: found.imitation,
        memory_bytes: found.memory_bytes,
        load_before: host_info::load(),
        load_after: None,
        others_share: Vec::new(),
        yardstick_bytes_per_second: Vec::new(),
        yardstick_wake_seconds: Vec::new(),
        bare_start_program: Some(yardstick::bare_program().to_owned()),
    }
}

/// The share of all CPU time that others have used in between.
pub(super) fn others_share(before: CpuTime, after: CpuTime) -> f64 {
    let all = after.all.saturating_sub(before.all).as_secs_f64();
    let others = after.others.saturating_sub(before.others).as_secs_f64();
    if all > 0.0 { (others / all).min(1.0) } else { 0.0 }
}

/// How many processors this process may use.
fn processors() -> usize {
    match cpu::allowed() {
        Ok(allowed) => allowed.len(),
        Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
    }
}
