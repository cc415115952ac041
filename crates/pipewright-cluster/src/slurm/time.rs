//! Times as Slurm prints them: durations, and moments in UTC.

use std::time::{Duration, SystemTime};

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

/// Reads `YYYY-MM-DDTHH:MM:SS`, in UTC. `None`: it is no moment, as `Unknown` is not.
pub(super) fn moment(text: &str) -> Option<SystemTime> {
    let (date, clock) = text.split_once('T')?;
    let mut parts = date.splitn(3, '-');
    let (year, month, day) =
        (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let time_of_day = duration(clock).filter(|it| it.as_secs() < 86_400)?;
    let since = Duration::from_secs(days_since_1970(year, month, day).checked_mul(86_400)?);
    SystemTime::UNIX_EPOCH.checked_add(since)?.checked_add(time_of_day)
}

/// Returns the number of days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    // Years begin in March here, so that the day that some lack is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // From 0000-03-01 to 1970-01-01.
    days - 719_468
}

/// Reads digits, and nothing else: no sign.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}
