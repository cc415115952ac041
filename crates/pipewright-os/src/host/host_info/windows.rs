//! `RtlGetVersion` and `GlobalMemoryStatusEx`.

use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

use super::{CpuTime, HostInfo};
use crate::base::handle::size_of_u32;
use crate::base::this_process::{system_version, wine_version};

pub(super) fn look() -> HostInfo {
    HostInfo {
        system: Some(system_version()),
        processor: std::env::var("PROCESSOR_IDENTIFIER").ok(),
        imitation: wine_version().is_some(),
        memory_bytes: memory().map(|memory| memory.ullTotalPhys),
        ..HostInfo::default()
    }
}

pub(super) fn load() -> Option<f64> {
    // The system has no load average.
    None
}

pub(super) fn cpu_time() -> Option<CpuTime> {
    // `GetSystemTimes` covers all processes, but there is no count for children that have ended.
    None
}

pub(super) fn memory_stall() -> Option<std::time::Duration> {
    None
}

pub(super) fn free_memory_bytes() -> Option<u64> {
    memory().map(|memory| memory.ullAvailPhys.min(memory.ullAvailPageFile))
}

fn memory() -> Option<MEMORYSTATUSEX> {
    let mut memory =
        MEMORYSTATUSEX { dwLength: size_of_u32::<MEMORYSTATUSEX>(), ..Default::default() };
    // SAFETY: a live struct that contains its size.
    (unsafe { GlobalMemoryStatusEx(&raw mut memory) } != 0).then_some(memory)
}
