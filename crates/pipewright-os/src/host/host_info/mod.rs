//! The machine, as far as figures that were measured on it depend on what it is.

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

/// What a machine is. What cannot be told is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct HostInfo {
    /// The system and its version, as it calls itself.
    pub system: Option<String>,
    /// The version of the kernel.
    pub kernel: Option<String>,
    /// What the processors call themselves.
    pub processor: Option<String>,
    /// How the speed of the processors is chosen (`performance`, `powersave`).
    pub governor: Option<String>,
    /// How many processors' worth of time the groups that this process is in may use. `None`: as
    /// much as there is, or it cannot be told.
    pub quota_processors: Option<f64>,
    /// What the machine is simulated by, or that it is.
    pub virtual_machine: Option<String>,
    /// It is an imitation of its system, whose speed says nothing about the real one: Wine.
    pub imitation: bool,
    /// The memory that there is, in bytes.
    pub memory_bytes: Option<u64>,
}

/// Looks at the machine.
///
/// # Platform
/// Linux: files in `/etc`, `/proc` and `/sys`; the quota is cgroup v2's. macOS: `sysctlbyname`. Windows:
/// `RtlGetVersion`, `PROCESSOR_IDENTIFIER`, `GlobalMemoryStatusEx`.
#[must_use]
pub fn look() -> HostInfo {
    imp::look()
}

/// How many threads were running or about to, on average over the last minute.
///
/// # Platform
/// Linux: `/proc/loadavg`. macOS: `getloadavg`. Windows: always `None`, it does not count that.
#[must_use]
#[doc(alias = "getloadavg")]
pub fn load() -> Option<f64> {
    imp::load()
}

/// CPU time since the machine was started, of all its processors together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuTime {
    /// What there was, used or not.
    pub all: Duration,
    /// What was used by others than this process and the children that it has waited for. What interrupts took
    /// is left out: nobody can say for whom they were.
    pub others: Duration,
}

/// How much CPU time there was so far, and how much of it others have used.
///
/// # Platform
/// Linux: `/proc/stat` and `/proc/self/stat`, in steps of 10 ms. Elsewhere always `None`.
#[must_use]
pub fn cpu_time() -> Option<CpuTime> {
    imp::cpu_time()
}

/// How much memory can still be used without anybody being pushed out, in bytes.
///
/// # Platform
/// Linux: `MemAvailable` of `/proc/meminfo`, or what the groups (cgroup v2) or `RLIMIT_AS` leave, where that is less.
/// Windows: `GlobalMemoryStatusEx`. macOS: always `None`.
#[must_use]
pub fn free_memory_bytes() -> Option<u64> {
    imp::free_memory_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_told_where_it_can_be_and_grows() {
        assert_eq!(cpu_time().is_some(), cfg!(target_os = "linux"));
        let Some(before) = cpu_time() else { return };
        assert!(before.others < before.all, "{before:?}");
        let start = std::time::Instant::now();
        while cpu_time().is_some_and(|now| now.all == before.all) {
            assert!(start.elapsed() < Duration::from_secs(60), "it stands still");
        }
    }

    #[test]
    fn a_machine_knows_what_it_is() {
        let machine = look();
        assert!(machine.system.is_some_and(|system| !system.is_empty()));
        assert!(machine.memory_bytes.is_none_or(|bytes| bytes > 1 << 20));
        assert!(load().is_none_or(|load| load >= 0.0));
        assert!(free_memory_bytes().is_none_or(|bytes| bytes > 0));
    }
}
