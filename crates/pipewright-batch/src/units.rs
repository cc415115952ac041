//! Durations and sizes as people write them: one parser for the command line, JSON jobs and Python.

use std::fmt;
use std::time::Duration;

/// Parses a duration: numbers with units, such as `200ms`, `1.5s`, `1h30m` or `1h 30m`; a single number is seconds.
///
/// The units are `ns`, `us`, `ms`, `s`, `m`, `h`, `d` and `w`, or their usual longer names. A number may have a
/// fraction and an exponent, as for `timeout` of coreutils. What is not zero is at least a nanosecond, because zero
/// often means no limit.
///
/// ```
/// use std::time::Duration;
/// use pipewright_batch::{UnitError, parse_duration};
///
/// assert_eq!(parse_duration("1h30m")?, Duration::from_secs(5400));
/// assert_eq!(parse_duration("0.25")?, Duration::from_millis(250));
/// assert_eq!(parse_duration("soon"), Err(UnitError::NoDuration));
/// # Ok::<(), UnitError>(())
/// ```
///
/// # Errors
///
/// [`NoDuration`](UnitError::NoDuration) and [`TooLong`](UnitError::TooLong).
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let mut rest = text;
    let mut seconds = 0.0;
    let mut is_zero = true;
    loop {
        let (number, behind) = split_number(rest).ok_or(UnitError::NoDuration)?;
        is_zero &= !has_digit_above_zero(&rest[..rest.len() - behind.len()]);
        let ends_unit = |c: char| c.is_ascii_digit() || c == '.' || c == ' ';
        let (unit, more) = behind.split_at(behind.find(ends_unit).unwrap_or(behind.len()));
        let is_alone = rest.len() == text.len() && more.is_empty();
        seconds += number * unit_seconds(unit, is_alone).ok_or(UnitError::NoDuration)?;
        if more.is_empty() {
            break;
        }
        rest = more.strip_prefix(' ').unwrap_or(more);
    }
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| UnitError::TooLong)?;
    Ok(if is_zero { duration } else { duration.max(Duration::from_nanos(1)) })
}

/// Returns the seconds of a unit, under its usual names.
fn unit_seconds(unit: &str, is_alone: bool) -> Option<f64> {
    Some(match unit {
        "" if is_alone => 1.0,
        "ns" => 1e-9,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ms" => 0.001,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        "w" | "week" | "weeks" => 604_800.0,
        _ => return None,
    })
}

/// Parses a size in bytes: a number with `k`, `M`, `G` or `T` (also `KiB` ...: by 1024), or `kB`, `MB`, `GB`, `TB` (by
/// 1000), in any case.
///
/// ```
/// use pipewright_batch::{UnitError, parse_size};
///
/// assert_eq!(parse_size("1.5GiB")?, 3 << 29);
/// assert_eq!(parse_size("2GB")?, 2_000_000_000);
/// # Ok::<(), UnitError>(())
/// ```
///
/// # Errors
///
/// [`NoSize`](UnitError::NoSize) and [`TooLarge`](UnitError::TooLarge).
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split_number(text).ok_or(UnitError::NoSize)?;
    let unit_bytes = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "ki" | "kib" => 1024.0,
        "m" | "mi" | "mib" => 1024.0 * 1024.0,
        "g" | "gi" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "ti" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(UnitError::NoSize),
    };
    whole(number * unit_bytes).ok_or(UnitError::TooLarge)
}

/// Returns a number without its fraction. `None`: it is negative, or so large that a double is not exact.
pub(crate) fn whole(number: f64) -> Option<u64> {
    const MOST: f64 = 9e15;
    (0.0..=MOST).contains(&number).then_some(number as u64)
}

/// An error of a duration or a size, with the forms that are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitError {
    /// The text is no duration.
    NoDuration,
    /// The duration is longer than a clock counts.
    TooLong,
    /// The text is no size.
    NoSize,
    /// The size is larger than any memory.
    TooLarge,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnitError::NoDuration => "not a duration: write 200ms, 1.5s, 2m, 1h30m or 1d",
            UnitError::TooLong => "too long",
            UnitError::NoSize => "not a size: write 4096, 64k, 1MiB or 2GB",
            UnitError::TooLarge => "too large",
        })
    }
}

impl std::error::Error for UnitError {}

/// Splits a number from the text behind it: digits with a point, and an exponent as in `2.34e5`. Signs, infinities and
/// NaN are no numbers here.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let digits =
        |from: &str| from.len() - from.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let mut end = digits(text);
    let mut count = end;
    if let Some(fraction) = text[end..].strip_prefix('.') {
        count += digits(fraction);
        end += 1 + digits(fraction);
    }
    if count == 0 {
        return None;
    }
    if let Some(exponent) = text[end..].strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        // Without digits it is the start of a unit.
        if digits(unsigned) > 0 {
            end += 1 + (exponent.len() - unsigned.len()) + digits(unsigned);
        }
    }
    let (number, rest) = text.split_at(end);
    Some((number.parse().ok()?, rest))
}

/// Returns whether a number that `split_number` has found is not zero, however small: `1e-5000` is zero as a double.
fn has_digit_above_zero(number: &str) -> bool {
    let mantissa = number.split(['e', 'E']).next().unwrap_or(number);
    mantissa.contains(|c: char| matches!(c, '1'..='9'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_time_is_parsed() {
        for (text, micros) in [
            ("200ms", 200_000),
            ("500us", 500),
            ("2500\u{b5}s", 2500),
            ("3000000ns", 3000),
            ("1min", 60_000_000),
            ("90sec", 90_000_000),
            ("1h30m", 5_400_000_000),
            ("1h 30m", 5_400_000_000),
            ("1d12h30m10.5s", 131_410_500_000),
            ("1w", 604_800_000_000),
            (".5", 500_000),
            ("5.", 5_000_000),
            (".5h", 1_800_000_000),
            ("2.34e5", 234_000_000_000),
            ("1e-1s", 100_000),
            ("3", 3_000_000),
            ("0", 0),
            ("0h0m", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for tiny in ["1e-5000", "0.00000000001", "1e-3ns", "0s1e-9ns"] {
            assert_eq!(parse_duration(tiny), Ok(Duration::from_nanos(1)), "{tiny}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "", "-1s", "s", "1x", "1 s", "inf", "nan", "1s2", "1.2.3s", "+1s", "1h  30m", "1h30m ",
            " 1h", "1h-1m", "h1", "e5", "1 2", "1h 30", "42D",
        ] {
            assert_eq!(parse_duration(text), Err(UnitError::NoDuration), "{text}");
        }
        for text in ["99999999999999999999d", "1e400s"] {
            assert_eq!(parse_duration(text), Err(UnitError::TooLong), "{text}");
        }
    }

    #[test]
    fn every_unit_of_size_is_parsed() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64k", 65_536),
            ("1MiB", 1 << 20),
            ("2GB", 2_000_000_000),
            ("1.5K", 1536),
            ("0", 0),
            ("7B", 7),
            ("1kB", 1000),
            ("1kib", 1024),
            ("1mb", 1_000_000),
            (".5M", 1 << 19),
            ("2.34e5", 234_000),
            ("1e3k", 1_024_000),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "-1", "k", "1x", "inf", "0x10", "1 k", "k1", "1s"] {
            assert_eq!(parse_size(text), Err(UnitError::NoSize), "{text}");
        }
        for text in ["99999999999G", "1e300"] {
            assert_eq!(parse_size(text), Err(UnitError::TooLarge), "{text}");
        }
        assert_eq!((whole(-0.5), whole(f64::NAN), whole(2.5)), (None, None, Some(2)));
    }

    #[test]
    fn a_number_ends_where_its_unit_begins() {
        for (text, number, unit) in [
            ("1s", 1.0, "s"),
            (".5", 0.5, ""),
            ("5.", 5.0, ""),
            ("2.34e5", 234_000.0, ""),
            ("1e-3s", 0.001, "s"),
            ("1E+2m", 100.0, "m"),
            ("1h30m", 1.0, "h30m"),
            ("1e", 1.0, "e"),
            ("1e+", 1.0, "e+"),
            ("1.2.3", 1.2, ".3"),
        ] {
            assert_eq!(split_number(text), Some((number, unit)), "{text}");
        }
        for text in ["", ".", "e5", "-1", "+1", "inf", "NaN", " 1", "\u{b5}"] {
            assert_eq!(split_number(text), None, "{text}");
        }
    }
}
