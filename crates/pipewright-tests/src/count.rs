//! Handles, zombies, threads and memory of this process.

#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(target_os = "macos")]
pub use macos::*;
#[cfg(windows)]
pub use windows::*;

/// Returns the number of handles that this process has open.
pub fn handles() -> usize {
    pipewright_os::base::handle::open_handles().expect("the handles can be listed").len()
}

/// Returns the unreaped children of this process.
#[cfg(unix)]
pub fn zombies() -> Vec<u32> {
    children().into_iter().filter(|pid| crate::alive::is_zombie(*pid)).collect()
}

/// Counts from `/proc`.
#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use crate::watchdog;

    /// Returns the same once no thread of ours is about to close one more: without pidfds, the thread that waited
    /// for a child still holds a handle when that child's run has returned.
    pub fn handles_at_rest() -> usize {
        watchdog::until("no thread waits for a child", || !has_thread("pipewright-exit"));
        super::handles()
    }

    fn has_thread(name: &str) -> bool {
        let names = fs::read_dir("/proc/self/task").expect("/proc is there").flatten();
        names
            .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
            .any(|it| it.trim_end() == name)
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

    /// Returns the memory of this process without that of its program's file, in bytes: how many pages of a file count
    /// depends on what the machine has cached of it, and in how large pieces.
    pub fn anonymous_bytes() -> usize {
        (status_kib("RssAnon:") + status_kib("RssShmem:")) * 1024
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
}

/// Counts from `/dev/fd` and `ps`.
#[cfg(target_os = "macos")]
mod macos {
    use std::process::Command;

    use crate::alive;

    /// Returns the same: no thread closes a handle later.
    pub fn handles_at_rest() -> usize {
        super::handles()
    }

    /// Returns the children of this process, of any thread.
    pub fn children() -> Vec<u32> {
        alive::children_of(std::process::id())
    }

    /// Returns the number of threads of this process.
    pub fn threads() -> usize {
        // A line for each, below that of the titles.
        ps(&["-M"]).lines().count() - 1
    }

    /// Returns the memory that this process uses now, in bytes.
    pub fn rss_bytes() -> usize {
        ps(&["-o", "rss="]).trim().parse::<usize>().expect("a number of KiB") * 1024
    }

    /// Returns the same: its files are not told apart.
    pub fn anonymous_bytes() -> usize {
        rss_bytes()
    }

    /// Returns the memory that this process uses now: its allocator reports no more.
    pub fn kept_bytes() -> usize {
        rss_bytes()
    }

    /// The noise in that figure.
    pub const KEPT_NOISE_BYTES: usize = 2 << 20;

    fn ps(options: &[&str]) -> String {
        let own = std::process::id().to_string();
        let output = Command::new("/bin/ps").args(options).args(["-p", &own]).output();
        String::from_utf8(output.expect("every macOS has ps").stdout).expect("text")
    }
}

/// Counts from the system's calls.
#[cfg(windows)]
mod windows {
    use std::mem;
    use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};

    use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
    use windows_sys::Win32::System::Diagnostics::ToolHelp::{
        CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
    };
    use windows_sys::Win32::System::ProcessStatus::{
        K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS,
    };
    use windows_sys::Win32::System::Threading::GetCurrentProcess;

    /// Returns the same: no thread of ours holds a handle after a run.
    pub fn handles_at_rest() -> usize {
        super::handles()
    }

    /// Returns nothing: Windows has no zombies. An exited process remains while a handle to it is open.
    pub fn zombies() -> Vec<u32> {
        Vec::new()
    }

    /// Returns nothing: no child has to be reaped.
    pub fn children() -> Vec<u32> {
        Vec::new()
    }

    /// Returns the number of threads of this process.
    pub fn threads() -> usize {
        // SAFETY: numbers.
        let snapshot = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) };
        assert_ne!(snapshot, INVALID_HANDLE_VALUE, "threads can be listed");
        // SAFETY: the call above made it, and nothing else owns it.
        let snapshot = unsafe { OwnedHandle::from_raw_handle(snapshot) };
        let size = mem::size_of::<THREADENTRY32>() as u32;
        let mut entry = THREADENTRY32 { dwSize: size, ..Default::default() };
        let own = std::process::id();
        let mut count = 0;
        // SAFETY: an open snapshot and a live entry that knows its size.
        let mut found = unsafe { Thread32First(snapshot.as_raw_handle(), &raw mut entry) };
        while found != 0 {
            count += usize::from(entry.th32OwnerProcessID == own);
            // SAFETY: as above.
            found = unsafe { Thread32Next(snapshot.as_raw_handle(), &raw mut entry) };
        }
        count
    }

    /// Returns the memory that this process uses now, in bytes.
    pub fn rss_bytes() -> usize {
        let size = mem::size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
        let mut counters = PROCESS_MEMORY_COUNTERS { cb: size, ..Default::default() };
        // SAFETY: no arguments; returns a pseudo handle, which needs no close.
        let own = unsafe { GetCurrentProcess() };
        // SAFETY: our own process and live counters of that size.
        let succeeded = unsafe { K32GetProcessMemoryInfo(own, &raw mut counters, size) };
        assert_ne!(succeeded, 0, "memory can be measured");
        counters.WorkingSetSize
    }

    /// Returns the same: its files are not told apart.
    pub fn anonymous_bytes() -> usize {
        rss_bytes()
    }

    /// Returns the same: its allocator reports no more.
    pub fn kept_bytes() -> usize {
        rss_bytes()
    }

    /// The noise in that figure.
    pub const KEPT_NOISE_BYTES: usize = 1 << 20;
}
