//! Counts from `/proc`.

use std::fs;

use crate::{alive, watchdog};

/// Returns the number of handles that this process has open.
pub fn handles() -> usize {
    pipewright_os::base::handle::open_handles().expect("the handles can be listed").len()
}

/// Returns the same once no thread of ours is about to close one more: without pidfds, the thread that waited
/// for a child still holds a handle when that child's run has returned.
pub fn handles_at_rest() -> usize {
    watchdog::until("no thread waits for a child", || !has_thread("pipewright-exit"));
    handles()
}

fn has_thread(name: &str) -> bool {
    let names = fs::read_dir("/proc/self/task").expect("/proc is there").flatten();
    names
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .any(|it| it.trim_end() == name)
}

/// Returns the unreaped children of this process.
pub fn zombies() -> Vec<u32> {
    children().into_iter().filter(|pid| alive::is_zombie(*pid)).collect()
}

/// Returns the children of this process, of any thread.
pub fn children() -> Vec<u32> {
    let mut children = Vec::new();
    for task in fs::read_dir("/proc/self/task").expect("/proc is there").flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    children
}

/// Returns the number of threads of this process.
pub fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("/proc is there").count()
}

/// Returns the memory that this process uses now, in bytes.
pub fn rss_bytes() -> usize {
    status_kib("VmRSS:") * 1024
}

/// Returns the bytes that this process has allocated and not freed, and those of shared memory that it has
/// mapped. Freed memory that the allocator keeps does not count.
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

/// The noise in that figure: small blocks that each thread keeps for its next allocation, and those of a
/// runtime (40 to 90 KB were seen, after 500 runs as after 5,000).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub const KEPT_NOISE_BYTES: usize = 256 << 10;

/// Returns the memory that this process uses now: its allocator reports no more.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn kept_bytes() -> usize {
    rss_bytes()
}

/// The noise in that figure.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const KEPT_NOISE_BYTES: usize = 2 << 20;

fn status_kib(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find(|line| line.starts_with(field)).expect("the field is there");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number of KiB")
}
