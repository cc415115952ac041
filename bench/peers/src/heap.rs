//! The size of this process: made large on request, and how large it was at most.

use crate::Result;

/// The smallest page there is: one byte written in each makes all of them ours.
const PAGE_BYTES: usize = 4 << 10;

/// That many bytes of memory that are really there.
pub(crate) fn touched(bytes: usize) -> Vec<u8> {
    let mut heap = vec![0; bytes];
    for page in heap.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    heap
}

/// The most memory that this process has had.
pub(crate) fn peak_rss_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next())
        .ok_or("the kernel does not tell the peak")?;
    Ok(kib.parse::<u64>()? << 10)
}
