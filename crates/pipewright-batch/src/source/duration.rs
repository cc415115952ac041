//! Durations as people write them, by the rules of the command line.

use std::time::Duration;

/// The expected form of a duration, for errors.
pub(super) const EXPECTED: &str = "a duration such as 200ms, 1.5s, 2m, 1h or 1d";

/// Parses a number with `ms`, `s`, `m`, `h` or `d`; without a unit it is seconds. `None`: it is no duration, or too long.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    // Also refuses a sign, an infinity and NaN.
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let unit_seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit_seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_parsed() {
        for (text, millis) in [
            ("200ms", 200),
            ("1.5s", 1500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("3", 3000),
            ("0.25", 250),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_is_refused() {
        for text in ["", "-1s", "s", "1x", "1 s", "inf", "nan", "1e400s", "1.2.3s", "+1s", "9e99d"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("99999999999999999999d"), None);
    }
}
