//! The properties of this machine that affect measurements.

use std::time::Duration;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as imp;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
use macos as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

/// The properties of a machine. Unknown ones are `None`.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct HostInfo {
    /// The name and version of the system.
    pub system: Option<String>,
    /// The version of the kernel.
    pub kernel: Option<String>,
    /// The model of the processors.
    pub processor: Option<String>,
    /// The CPU frequency governor (`performance`, `powersave`).
    pub governor: Option<String>,
    /// The CPU quota of this process's cgroups, in processors. `None`: no quota, or unknown.
    pub quota_processors: Option<f64>,
    /// The name of the hypervisor, or `yes` if only its presence is known.
    pub virtual_machine: Option<String>,
    /// True under an emulation of the system (Wine), whose speed differs from that of the real system.
    pub imitation: bool,
    /// The size of the memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// Reads the properties of this machine.
///
/// # Platform
/// Linux: files in `/etc`, `/proc` and `/sys`; the quota is that of cgroup v2. macOS: `sysctlbyname`. Windows:
/// `RtlGetVersion`, `PROCESSOR_IDENTIFIER`, `GlobalMemoryStatusEx`.
#[must_use]
pub fn look() -> HostInfo {
    imp::look()
}

/// Returns the load average of the last minute: the number of running and runnable threads.
///
/// # Platform
/// Linux: `/proc/loadavg`. macOS: `getloadavg`. Windows: always `None`.
#[must_use]
#[doc(alias = "getloadavg")]
pub fn load() -> Option<f64> {
    imp::load()
}

/// The CPU time of all processors since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuTime {
    /// The total time, used or idle.
    pub all: Duration,
    /// The time used by processes other than this one and the children that it has waited for. Excludes
    /// interrupts, which cannot be attributed.
    pub others: Duration,
}

/// Returns the CPU time of the machine.
///
/// # Platform
/// Linux: `/proc/stat` and `/proc/self/stat`, in steps of 10 ms. Elsewhere always `None`.
#[must_use]
pub fn cpu_time() -> Option<CpuTime> {
    imp::cpu_time()
}

/// Returns the number of bytes of memory that can be used without swapping or evicting other programs.
///
/// # Platform
/// Linux: `MemAvailable` of `/proc/meminfo`, or less if the cgroups (v2) or `RLIMIT_AS` leave less. File data that a cgroup
/// has not used lately count as free. Windows:
/// `GlobalMemoryStatusEx`. macOS: always `None`.
#[must_use]
pub fn free_memory_bytes() -> Option<u64> {
    imp::free_memory_bytes()
}

/// Returns the time for which at least one process was stalled for lack of memory, since some moment in the past.
///
/// # Platform
/// Linux: pressure stall information of the cgroup (v2) of this process, or of the machine. Elsewhere always `None`.
#[must_use]
pub fn memory_stall() -> Option<Duration> {
    imp::memory_stall()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_where_it_is_known() {
        assert_eq!(cpu_time().is_some(), cfg!(target_os = "linux"));
        let Some(before) = cpu_time() else { return };
        assert!(before.others < before.all, "{before:?}");
        let start = std::time::Instant::now();
        while cpu_time().is_some_and(|now| now.all == before.all) {
            assert!(start.elapsed() < Duration::from_secs(60), "it stands still");
        }
    }

    #[test]
    fn host_info_has_system_and_memory() {
        let machine = look();
        assert!(machine.system.is_some_and(|system| !system.is_empty()));
        assert!(machine.memory_bytes.is_none_or(|bytes| bytes > 1 << 20));
        assert!(load().is_none_or(|load| load >= 0.0));
        assert!(free_memory_bytes().is_none_or(|bytes| bytes > 0));
    }
}
