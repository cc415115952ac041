//! Asks `/proc`.

use std::fs;

use crate::{alive, watchdog};

/// How many handles this process has open.
pub fn handles() -> usize {
    pipewright_os::base::handle::open_handles().expect("the handles can be listed").len()
}

/// The same, when no thread of ours is about to close one more: without pidfds, the one that has waited for a
/// child still holds a handle when that child's run has returned.
pub fn handles_at_rest() -> usize {
    watchdog::until("nobody waits for a child", || !has_thread("pipewright-exit"));
    handles()
}

fn has_thread(name: &str) -> bool {
    let names = fs::read_dir("/proc/self/task").expect("/proc is there").flatten();
    names
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .any(|it| it.trim_end() == name)
}

/// The children of this process that nobody has reaped.
pub fn zombies() -> Vec<u32> {
    children().into_iter().filter(|pid| alive::is_zombie(*pid)).collect()
}

/// The children of this process, of whichever thread.
pub fn children() -> Vec<u32> {
    let mut children = Vec::new();
    for task in fs::read_dir("/proc/self/task").expect("/proc is there").flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    children
}

/// How many threads this process has.
pub fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("/proc is there").count()
}

/// The memory of this process that is in use now, in bytes.
pub fn rss_bytes() -> usize {
    status_kib("VmRSS:") * 1024
}

/// What this process has allocated and not freed, and what it has mapped of shared memory, in bytes. What the
/// allocator keeps of what was freed is none of it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn kept_bytes() -> usize {
    // SAFETY: no arguments.
    let heap = unsafe { libc::mallinfo2() };
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc is there");
    let shared = maps.lines().filter(|line| line.contains(" rw-s ")).filter_map(|line| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        Some(usize::from_str_radix(to, 16).ok()? - usize::from_str_radix(from, 16).ok()?)
    });
    heap.uordblks + heap.hblkhd + shared.sum::<usize>()
}

/// By how much that may differ for no reason: small blocks that each thread keeps for its next, and what a runtime
/// does (40 to 90 KB were seen, whether after 500 runs or 5,000).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub const KEPT_NOISE_BYTES: usize = 256 << 10;

/// The memory of this process that is in use now: its allocator does not tell more.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn kept_bytes() -> usize {
    rss_bytes()
}

/// By how much that may differ for no reason.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const KEPT_NOISE_BYTES: usize = 2 << 20;

fn status_kib(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find(|line| line.starts_with(field)).expect("the field is there");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number of KiB")
}
