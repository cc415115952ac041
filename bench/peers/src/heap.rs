//! The memory of this process: allocates a heap on request, and reads the peak.

use crate::Result;

/// The smallest page size. A write of one byte per page makes all pages resident.
const PAGE_BYTES: usize = 4 << 10;

/// Allocates that many bytes and makes them resident.
pub(crate) fn resident(bytes: usize) -> Vec<u8> {
    let mut heap = vec![0; bytes];
    for page in heap.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    heap
}

/// Returns the peak memory of this process.
pub(crate) fn peak_rss_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next())
        .ok_or("/proc/self/status has no VmHWM")?;
    Ok(kib.parse::<u64>()? << 10)
}
