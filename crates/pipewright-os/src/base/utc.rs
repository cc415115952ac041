//! Dates and times of day, in UTC.

/// A date and a time of day in UTC.
///
/// ```
/// # use pipewright_os::base::utc::Utc;
/// let leap_day = Utc::of(1_709_210_096);
/// assert_eq!((leap_day.year, leap_day.month, leap_day.day), (2024, 2, 29));
/// assert_eq!((leap_day.hour, leap_day.minute, leap_day.second), (12, 34, 56));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Utc {
    /// The year.
    pub year: u64,
    /// The month, from 1.
    pub month: u64,
    /// The day of the month, from 1.
    pub day: u64,
    /// The hour.
    pub hour: u64,
    /// The minute.
    pub minute: u64,
    /// The second.
    pub second: u64,
}

impl Utc {
    /// Returns the date and the time at this number of seconds after the start of 1970.
    #[must_use]
    pub fn of(unix_seconds: u64) -> Utc {
        let (days, rest) = (unix_seconds / 86_400, unix_seconds % 86_400);
        // Years begin in March here, so that a leap day is the last day of one (Hinnant, "chrono-compatible low-level date
        // algorithms").
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Utc {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * march_month + 2) / 5 + 1,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_years_and_centuries_are_right() {
        let date = |seconds| {
            let Utc { year, month, day, .. } = Utc::of(seconds);
            (year, month, day)
        };
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(951_782_400), (2000, 2, 29));
        assert_eq!(date(978_307_199), (2000, 12, 31));
        assert_eq!(date(4_102_444_799), (2099, 12, 31));
        assert_eq!(date(4_107_542_399), (2100, 2, 28));
        assert_eq!(date(4_107_542_400), (2100, 3, 1));
    }
}
