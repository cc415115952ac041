//! Counts from the system's calls.

use std::mem;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// Returns the number of handles that this process has open.
pub fn handles() -> usize {
    pipewright_os::base::handle::open_handles().expect("the handles can be listed").len()
}

/// Returns the same: no thread of ours holds a handle after a run.
pub fn handles_at_rest() -> usize {
    handles()
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

/// Returns the same: its allocator reports no more.
pub fn kept_bytes() -> usize {
    rss_bytes()
}

/// The noise in that figure.
pub const KEPT_NOISE_BYTES: usize = 1 << 20;
