//! Times as Slurm prints them: durations, and moments in UTC.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Reads `DAYS-HH:MM:SS`, in which the days, and the hours, may be missing. `None`: it is no duration, as `UNLIMITED` is not.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (number(days)?, clock),
        None => (0, text),
    };
    let mut seconds: u64 = 0;
    let parts = clock.split(':').count();
    if !(2..=3).contains(&parts) {
        return None;
    }
    for part in clock.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(number(part)?)?;
    }
    Some(Duration::from_secs(days.checked_mul(86_400)?.checked_add(seconds)?))
}

/// Reads `YYYY-MM-DDTHH:MM:SS`, in UTC. `None`: it is no moment after 1970, as `Unknown` is not.
pub(super) fn moment(text: &str) -> Option<SystemTime> {
    let time = DateTime::strptime("%Y-%m-%dT%H:%M:%S", text).ok()?;
    let moment = TimeZone::UTC.to_timestamp(time).ok()?;
    SystemTime::try_from(moment).ok().filter(|_| moment >= Timestamp::UNIX_EPOCH)
}

/// Reads digits, and nothing else: no sign.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}
