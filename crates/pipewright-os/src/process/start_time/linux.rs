//! `/proc/PID/stat`.

use crate::process::procfs::{Stat, proc_is_ours};

pub(super) fn start_time(pid: u32) -> Option<u64> {
    if !proc_is_ours().ok()? {
        return None;
    }
    Stat::of(pid).ok()?.filter(|stat| !stat.has_ended()).map(|stat| stat.start)
}
