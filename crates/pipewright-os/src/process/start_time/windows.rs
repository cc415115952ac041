//! `GetProcessTimes`.

use crate::process::process_object::ProcessObject;

pub(super) fn start_time(pid: u32) -> Option<u64> {
    let process = ProcessObject::open(pid).ok()??;
    if process.has_ended() { None } else { process.created() }
}
