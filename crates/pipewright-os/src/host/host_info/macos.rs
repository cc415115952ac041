//! `sysctlbyname`.

use super::{CpuTime, HostInfo};
use crate::host::sysctl::{number, text};

pub(super) fn look() -> HostInfo {
    HostInfo {
        system: text(c"kern.osproductversion").map(|version| format!("macOS {version}")),
        kernel: text(c"kern.osrelease").map(|version| format!("Darwin {version}")),
        processor: text(c"machdep.cpu.brand_string"),
        virtual_machine: (number(c"kern.hv_vmm_present") == Some(1)).then(|| "yes".to_owned()),
        memory_bytes: number(c"hw.memsize"),
        ..HostInfo::default()
    }
}

pub(super) fn load() -> Option<f64> {
    let mut load = 0.0;
    // SAFETY: space for one value, as requested.
    (unsafe { libc::getloadavg(&raw mut load, 1) } == 1).then_some(load)
}

pub(super) fn cpu_time() -> Option<CpuTime> {
    // Mach has a call for it, which this crate does not bind.
    None
}

pub(super) fn memory_stall() -> Option<std::time::Duration> {
    None
}

pub(super) fn free_memory_bytes() -> Option<u64> {
    // The kernel's count of free memory excludes memory that it would reclaim.
    None
}
