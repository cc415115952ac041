//! `sched_setaffinity`, and the core topology in `/sys`.

use std::fs;
use std::io;

pub(super) use super::unix::online;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub(super) fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
}

pub(super) fn pin_this_thread(processor: usize) -> io::Result<()> {
    if processor >= CpuSet::MAX_CPU {
        // The set has no bit for it, and would panic.
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
}

pub(super) fn same_core(processor: usize) -> Option<Vec<usize>> {
    let path = format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
    super::parse_list(&fs::read_to_string(path).ok()?)
}
