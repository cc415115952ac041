//! `proc_pidinfo`.

use crate::process::libproc::{ProcessInfo, StartTime};

pub(super) fn start_time(pid: u32) -> Option<u64> {
    let has_ended = ProcessInfo::of(pid).is_some_and(|process| process.has_ended());
    if has_ended { None } else { StartTime::of(pid).map(StartTime::as_microseconds) }
}
