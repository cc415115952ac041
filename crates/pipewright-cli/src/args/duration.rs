//! Durations as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

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

    /// Parses a number with `ms`, `s`, `m`, `h` or `d`; without a unit it is seconds.
    fn from_str(text: &str) -> Result<Span, String> {
        let refuse = || format!("\"{text}\" is not a duration: write 200ms, 1.5s, 2m, 1h or 1d");
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        if !number.starts_with(|c: char| c.is_ascii_digit()) {
            // Also refuses a sign, an infinity and NaN.
            return Err(refuse());
        }
        let number: f64 = number.parse().map_err(|_| refuse())?;
        let unit_seconds = match unit {
            "ms" => 0.001,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(refuse()),
        };
        let duration = Duration::try_from_secs_f64(number * unit_seconds)
            .map_err(|_| format!("\"{text}\" is too long"))?;
        Ok(Span { duration, text: text.to_owned() })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        // A bare number is shown as seconds.
        if self.text.ends_with(|c: char| c.is_ascii_digit()) { f.write_str("s") } else { Ok(()) }
    }
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
            ("0", 0),
            ("0.25", 250),
        ] {
            assert_eq!(text.parse::<Span>().unwrap().duration, Duration::from_millis(millis));
        }
        assert_eq!("3".parse::<Span>().unwrap().to_string(), "3s");
    }

    #[test]
    fn an_invalid_duration_is_refused_with_the_valid_forms() {
        for text in ["", "-1s", "s", "1x", "1 s", "inf", "nan", "1e400s", "1s2", "1.2.3s", "+1s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        let error = "soon".parse::<Span>().unwrap_err();
        assert_eq!(error, "\"soon\" is not a duration: write 200ms, 1.5s, 2m, 1h or 1d");
        assert!("99999999999999999999d".parse::<Span>().unwrap_err().contains("too long"));
    }
}
