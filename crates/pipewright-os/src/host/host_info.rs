//! This machine: its name, its boot, and the properties that affect measurements.

use std::time::Duration;

/// Returns the identity of the current boot: another text after each start of the machine. `None` if it is unknown.
///
/// # Platform
/// Linux: `/proc/sys/kernel/random/boot_id`, which containers share with their host. macOS: the sysctl
/// `kern.bootsessionuuid`. Windows: always `None`; start times of processes are unique across boots there.
///
/// ```
/// # use pipewright_os::host::host_info::boot_id;
/// assert_eq!(boot_id(), boot_id());
/// ```
#[must_use]
pub fn boot_id() -> Option<String> {
    imp::boot_id()
}

/// Returns the name of this machine in its network. `None` if it has none.
///
/// # Platform
/// Linux: `/proc/sys/kernel/hostname`. macOS: the sysctl `kern.hostname`. Windows: the variable `COMPUTERNAME`.
///
/// ```
/// # use pipewright_os::host::host_info::host_name;
/// assert!(host_name().is_none_or(|name| !name.is_empty()));
/// ```
#[must_use]
#[doc(alias = "gethostname")]
pub fn host_name() -> Option<String> {
    imp::host_name().filter(|name| !name.is_empty())
}

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

/// Returns the number of threads that run or are ready to run, without this one.
///
/// # Platform
/// Linux: the fourth field of `/proc/loadavg`, which is as of now. macOS: the load average of the last minute. Windows:
/// always `None`.
#[must_use]
pub fn running_threads() -> Option<f64> {
    imp::running_threads()
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
/// Linux: `MemAvailable` of `/proc/meminfo`, or less if the cgroups (v2) or `RLIMIT_AS` leave less. File data that a
/// cgroup has not used lately count as free. Windows:
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

// Files in `/etc`, `/proc` and `/sys`.
#[cfg(target_os = "linux")]
mod imp {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use rustix::process::{Resource, getrlimit};

    use super::{CpuTime, HostInfo};
    use crate::base::memory::page_bytes;

    pub(super) fn look() -> HostInfo {
        let processors = text("/proc/cpuinfo").unwrap_or_default();
        HostInfo {
            system: text("/etc/os-release").and_then(|text| pretty_name(&text)),
            kernel: text("/proc/sys/kernel/osrelease"),
            processor: value(&processors, "model name"),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            quota_processors: groups().iter().filter_map(quota).reduce(f64::min),
            virtual_machine: virtual_machine(&processors),
            imitation: false,
            memory_bytes: memory("MemTotal"),
        }
    }

    pub(super) fn load() -> Option<f64> {
        text("/proc/loadavg")?.split(' ').next()?.parse().ok()
    }

    pub(super) fn running_threads() -> Option<f64> {
        let running = text("/proc/loadavg")?.split(' ').nth(3)?.split('/').next()?.parse::<u32>();
        // Whoever reads it runs.
        running.ok().map(|running| running.saturating_sub(1).into())
    }

    pub(super) fn cpu_time() -> Option<CpuTime> {
        parse_cpu_time(&text("/proc/stat")?, &text("/proc/self/stat")?)
    }

    pub(super) fn boot_id() -> Option<String> {
        text("/proc/sys/kernel/random/boot_id")
    }

    pub(super) fn host_name() -> Option<String> {
        text("/proc/sys/kernel/hostname")
    }

    /// The unit of both files, on every processor: proc(5), `USER_HZ`.
    const TICK: Duration = Duration::from_millis(10);

    fn parse_cpu_time(all: &str, own: &str) -> Option<CpuTime> {
        let ticks: Vec<u64> =
            all.lines().next()?.split_whitespace().skip(1).flat_map(str::parse).collect();
        // The first two include the time of guests.
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
            return None;
        };
        // The name may contain any character, so start after it: eleven other fields, then two times of this process
        // and two of its children.
        let (_, behind) = own.rsplit_once(')')?;
        let own: Vec<u64> =
            behind.split_whitespace().skip(11).take(4).flat_map(str::parse).collect();
        let own = (own.len() == 4).then(|| own.iter().sum())?;
        let time = |ticks: u64| TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX));
        Some(CpuTime {
            all: time(user + nice + system + idle + iowait + irq + softirq + steal),
            others: time((user + nice + system + steal).saturating_sub(own)),
        })
    }

    pub(super) fn free_memory_bytes() -> Option<u64> {
        let left = |group: &PathBuf| {
            let number = |name| text(group.join(name))?.parse::<u64>().ok();
            // "max" is no number and means no limit.
            let used = number("memory.current")?.saturating_sub(reclaimable(group));
            Some(number("memory.max")?.saturating_sub(used))
        };
        let groups = groups();
        let left = groups.iter().filter_map(left).chain(address_space_left());
        memory("MemAvailable").into_iter().chain(left).min()
    }

    /// Returns the bytes of file data in a cgroup that the kernel drops first.
    fn reclaimable(group: &Path) -> u64 {
        let stat = text(group.join("memory.stat")).unwrap_or_default();
        let line = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
        line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    }

    pub(super) fn memory_stall() -> Option<Duration> {
        let of_group = groups().first().and_then(|group| text(group.join("memory.pressure")));
        let pressure = of_group.or_else(|| text("/proc/pressure/memory"))?;
        let some = pressure.lines().find(|line| line.starts_with("some "))?;
        some.split_once("total=")?.1.parse().ok().map(Duration::from_micros)
    }

    /// Returns the bytes left by `RLIMIT_AS`. `None` if there is no limit.
    fn address_space_left() -> Option<u64> {
        let most = getrlimit(Resource::As).current?;
        let pages = text("/proc/self/statm")?.split(' ').next()?.parse::<u64>().ok()?;
        Some(most.saturating_sub(pages * page_bytes() as u64))
    }

    fn text(path: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(path).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn pretty_name(text: &str) -> Option<String> {
        let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
        Some(name.trim_matches(['"', '\'']).to_owned())
    }

    /// Returns the value after a name and a colon.
    fn value(text: &str, name: &str) -> Option<String> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }

    fn memory(name: &str) -> Option<u64> {
        let value = value(&text("/proc/meminfo")?, name)?;
        Some(value.strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    }

    /// Returns the folders of this process's cgroups, from its own upwards.
    fn groups() -> Vec<PathBuf> {
        let own = text("/proc/self/cgroup").unwrap_or_default();
        let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::/")) else {
            return Vec::new();
        };
        let root = Path::new("/sys/fs/cgroup");
        let folder = root.join(own);
        folder
            .ancestors()
            .take_while(|folder| folder.starts_with(root))
            .map(Path::to_owned)
            .collect()
    }

    fn quota(group: impl AsRef<Path>) -> Option<f64> {
        parse_quota(&text(group.as_ref().join("cpu.max"))?)
    }

    /// Parses `cpu.max`: the usable microseconds and the period.
    fn parse_quota(text: &str) -> Option<f64> {
        let (most, period) = text.split_once(' ')?;
        // "max" is no number and means no limit.
        Some(most.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    }

    fn virtual_machine(processors: &str) -> Option<String> {
        let name =
            || text("/sys/class/dmi/id/product_name").or_else(|| text("/sys/hypervisor/type"));
        let flags = value(processors, "flags").unwrap_or_default();
        let is_virtual = flags.split(' ').any(|flag| flag == "hypervisor");
        is_virtual.then(|| name().unwrap_or_else(|| "yes".to_owned()))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn kernel_files_are_parsed() {
            assert_eq!(parse_quota("150000 100000"), Some(1.5));
            assert_eq!(parse_quota("max 100000"), None);
            assert_eq!(parse_quota(""), None);
            assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"A B\"\n").as_deref(), Some("A B"));
            let flags = "model name\t: Some CPU\nflags\t\t: fpu hypervisor\n";
            assert_eq!(value(flags, "model name").as_deref(), Some("Some CPU"));
            assert!(virtual_machine(flags).is_some());
            assert_eq!(virtual_machine("flags\t: fpu vme"), None);
        }

        #[test]
        fn time_of_others_excludes_us_our_children_and_interrupts() {
            let own = "7 (a) b) R 1 7 7 0 -1 4194304 1 2 3 4 100 50 20 5 20 0 1 0";
            let found = parse_cpu_time("cpu  1000 10 500 8000 30 4 6 50 0 0\ncpu0 1 1\n", own);
            let expected = CpuTime {
                all: Duration::from_millis(96_000),
                others: Duration::from_millis(10 * (1560 - 175)),
            };
            assert_eq!(found, Some(expected));
            assert_eq!(parse_cpu_time("cpu  1000 10\n", own), None);
            assert_eq!(parse_cpu_time("cpu  1 2 3 4 5 6 7 8", "7 (a) R 1"), None);
        }
    }
}

// `sysctlbyname`.
#[cfg(target_os = "macos")]
mod imp {
    use std::ffi::CStr;
    use std::ptr;

    use super::{CpuTime, HostInfo};

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

    pub(super) fn running_threads() -> Option<f64> {
        load()
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

    pub(super) fn boot_id() -> Option<String> {
        text(c"kern.bootsessionuuid")
    }

    pub(super) fn host_name() -> Option<String> {
        text(c"kern.hostname")
    }

    /// Returns the bytes of a value, if it fits.
    fn bytes<const ROOM: usize>(name: &CStr) -> Option<([u8; ROOM], usize)> {
        let mut value = [0_u8; ROOM];
        let mut length = ROOM;
        let place = value.as_mut_ptr().cast();
        // SAFETY: a name that ends with a zero, a live buffer and its size, and no new value.
        let result = unsafe {
            libc::sysctlbyname(name.as_ptr(), place, &raw mut length, ptr::null_mut(), 0)
        };
        (result == 0).then_some((value, length))
    }

    /// Returns a value that is text.
    fn text(name: &CStr) -> Option<String> {
        let (value, length) = bytes::<256>(name)?;
        let text = String::from_utf8_lossy(value.get(..length)?);
        Some(text.trim_end_matches('\0').to_owned())
    }

    /// Returns a value that is an unsigned number.
    fn number(name: &CStr) -> Option<u64> {
        match bytes::<8>(name)? {
            (value, 8) => Some(u64::from_ne_bytes(value)),
            ([a, b, c, d, ..], 4) => Some(u64::from(u32::from_ne_bytes([a, b, c, d]))),
            _ => None,
        }
    }
}

// `RtlGetVersion`, `GlobalMemoryStatusEx` and the environment.
#[cfg(windows)]
mod imp {
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

    pub(super) fn running_threads() -> Option<f64> {
        None
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

    pub(super) fn boot_id() -> Option<String> {
        // The system reports only the time of the boot, which moves when the clock is set.
        None
    }

    pub(super) fn host_name() -> Option<String> {
        std::env::var("COMPUTERNAME").ok()
    }

    fn memory() -> Option<MEMORYSTATUSEX> {
        let mut memory =
            MEMORYSTATUSEX { dwLength: size_of_u32::<MEMORYSTATUSEX>(), ..Default::default() };
        // SAFETY: a live struct that contains its size.
        (unsafe { GlobalMemoryStatusEx(&raw mut memory) } != 0).then_some(memory)
    }
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

    #[test]
    fn a_boot_has_an_identity_except_on_windows() {
        let id = boot_id();
        assert_eq!(id.is_some(), !cfg!(windows), "{id:?}");
        assert!(id.is_none_or(|id| id.len() >= 32 && id.trim() == id));
    }

    #[test]
    fn the_machine_has_a_name() {
        let name = host_name().unwrap();
        assert!(name.trim() == name && !name.contains('\0'), "{name:?}");
    }
}
