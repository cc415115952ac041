//! Durations as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::number;

/// A duration, and its text on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) duration: Duration,
    text: String,
}

impl Span {
    /// Returns the duration as a limit; zero is no limit, as in `timeout` of coreutils.
    pub(crate) fn as_limit(&self) -> Option<Duration> {
        Some(self.duration).filter(|duration| !duration.is_zero())
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let duration = parse(text)?.ok_or_else(|| format!("\"{text}\" is too long"))?;
        Ok(Span { duration, text: text.to_owned() })
    }
}

/// Parses numbers with units, such as `1h30m`; a single number without a unit is seconds. `None`: longer than a clock counts.
pub(super) fn parse(text: &str) -> Result<Option<Duration>, String> {
    let refuse = || format!("\"{text}\" is not a duration: write 200ms, 1.5s, 2m, 1h30m or 1d");
    let mut rest = text;
    let mut seconds = 0.0;
    loop {
        let (number, behind) = number::split(rest).ok_or_else(refuse)?;
        let is_unit = |c: &char| !c.is_ascii_digit() && *c != '.';
        let unit_bytes = behind.chars().take_while(is_unit).map(char::len_utf8).sum();
        let (unit, more) = behind.split_at(unit_bytes);
        let is_alone = rest.len() == text.len() && more.is_empty();
        seconds += number * unit_seconds(unit, is_alone).ok_or_else(refuse)?;
        if more.is_empty() {
            break;
        }
        rest = more;
    }
    let duration = Duration::try_from_secs_f64(seconds).ok();
    // Zero means no limit, and a tiny number is not zero.
    let is_zero = text
        .split(['e', 'E'])
        .next()
        .is_some_and(|it| !it.contains(|c: char| matches!(c, '1'..='9')));
    Ok(duration
        .map(|duration| if is_zero { duration } else { duration.max(Duration::from_nanos(1)) }))
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

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        // A bare number is shown as seconds.
        if self.text.ends_with(|c: char| c.is_ascii_digit() || c == '.') {
            f.write_str("s")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_parsed() {
        for (text, millis) in [
            ("200ms", 200),
            ("500us", 0),
            ("2500\u{b5}s", 2),
            ("3000000ns", 3),
            ("1min", 60_000),
            ("90sec", 90_000),
            ("1h30m", 5_400_000),
            ("1d12h30m10.5s", 131_410_500),
            ("1w", 604_800_000),
            (".5", 500),
            ("5.", 5000),
            (".5h", 1_800_000),
            ("2.34e5", 234_000_000),
            ("1e-1s", 100),
            ("1.5s", 1500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("3", 3000),
            ("0", 0),
            ("0.25", 250),
        ] {
            let parsed = text.parse::<Span>().unwrap().duration;
            assert_eq!(parsed.as_millis(), millis, "{text}");
        }
        for tiny in ["1e-5000", "0.00000000001", "1e-3ns"] {
            assert_eq!(tiny.parse::<Span>().unwrap().duration, Duration::from_nanos(1), "{tiny}");
        }
        assert_eq!("3".parse::<Span>().unwrap().to_string(), "3s");
    }

    #[test]
    fn an_invalid_duration_is_refused_with_the_valid_forms() {
        for text in [
            "", "-1s", "s", "1x", "1 s", "inf", "nan", "1e400s", "1s2", "1.2.3s", "+1s", "1h 30m",
            "1h-1m", "h1", "e5",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        let error = "soon".parse::<Span>().unwrap_err();
        assert_eq!(error, "\"soon\" is not a duration: write 200ms, 1.5s, 2m, 1h30m or 1d");
        assert!("99999999999999999999d".parse::<Span>().unwrap_err().contains("too long"));
    }
}
