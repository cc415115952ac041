//! Files in `/etc`, `/proc` and `/sys`.

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

pub(super) fn cpu_time() -> Option<CpuTime> {
    parse_cpu_time(&text("/proc/stat")?, &text("/proc/self/stat")?)
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
    // The name may contain any character, so start after it: eleven other fields, then two times of this process and
    // two of its children.
    let (_, behind) = own.rsplit_once(')')?;
    let own: Vec<u64> = behind.split_whitespace().skip(11).take(4).flat_map(str::parse).collect();
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
    folder.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_owned).collect()
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
    let name = || text("/sys/class/dmi/id/product_name").or_else(|| text("/sys/hypervisor/type"));
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
