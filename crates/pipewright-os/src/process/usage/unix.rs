//! `getrusage`.

use std::io;
use std::time::Duration;

use super::Spent;

pub(super) fn of_this_process() -> io::Result<Spent> {
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a live struct.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let switches = usage.ru_nvcsw + usage.ru_nivcsw;
    Ok(Spent {
        cpu: from_timeval(usage.ru_utime) + from_timeval(usage.ru_stime),
        switches: u64::try_from(switches).ok(),
    })
}

pub(crate) fn from_timeval(time: libc::timeval) -> Duration {
    // Neither is ever negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
