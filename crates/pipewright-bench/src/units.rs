//! Figures for people, three digits and a unit; and sentences, wrapped without cutting words.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Throughput: more is better.
    BytesPerSecond,
    /// Time: less is better.
    Seconds,
}

impl Unit {
    pub(crate) fn more_is_better(self) -> bool {
        self == Unit::BytesPerSecond
    }

    /// Returns a number that is larger for better figures.
    pub(crate) fn rank(self, value: f64) -> f64 {
        if self.more_is_better() { value } else { -value }
    }

    /// Formats a figure: `2.31 GB/s`, `457 µs`.
    pub(crate) fn show(self, value: f64) -> String {
        let (divisor, unit) = self.scale(value);
        format!("{} {unit}", three_digits(value / divisor))
    }

    /// Returns the divisor and the name of the unit for figures of that size.
    pub(crate) fn scale(self, value: f64) -> (f64, &'static str) {
        let scales: &[(f64, &str)] = match self {
            Unit::BytesPerSecond => &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
            Unit::Seconds => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
        };
        // A figure that would be shown as 1000 of one unit is 1 of the next.
        let fits = |(scale, _): &&(f64, &str)| value.abs() >= 0.9995 * scale;
        let smallest = scales.last().copied().unwrap_or((1.0, ""));
        scales.iter().find(fits).copied().unwrap_or(smallest)
    }
}

/// Formats a number with three digits: `0.123`, `1.23`, `12.3`, `123`, `1234`.
#[must_use]
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size < 0.9995 => 3,
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Formats a size: `8 KiB`, `1 B`, `1 MiB`. Sizes that are not a whole number of a unit have a smaller one.
pub(crate) fn bytes(bytes: u64) -> String {
    let (count, unit) = whole(bytes);
    format!("{count} {unit}")
}

/// Formats a size in less space: `8k`, `1`, `1M`.
pub(crate) fn short_bytes(bytes: u64) -> String {
    let (count, unit) = whole(bytes);
    let letter = match unit {
        "B" => "",
        "KiB" => "k",
        "MiB" => "M",
        _ => "G",
    };
    format!("{count}{letter}")
}

fn whole(bytes: u64) -> (u64, &'static str) {
    let units = [("GiB", 30_u32), ("MiB", 20), ("KiB", 10)];
    let fits = |(_, shift): &&(_, u32)| bytes > 0 && bytes % (1_u64 << shift) == 0;
    units.iter().find(fits).map_or((bytes, "B"), |(unit, shift)| (bytes >> shift, unit))
}

/// Turns statements into sentences, one in a line; `None`: there are none.
pub(crate) fn sentences(statements: &[String]) -> Option<String> {
    let sentence = |statement: &String| {
        let mut characters = statement.chars();
        let first = characters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(characters).chain(['.']).collect()
    };
    let lines: Vec<String> = statements.iter().map(sentence).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Formats a ratio as a change: `+12 %`, `-5 %`.
pub(crate) fn change(ratio: f64) -> String {
    format!("{:+.0} %", (ratio - 1.0) * 100.0)
}

/// Formats a time: `2026-11-22 05:30 UTC`.
pub(crate) fn date(unix_seconds: u64) -> String {
    // A file of another program may have any number there.
    let seconds = i64::try_from(unix_seconds).ok();
    let time = seconds.and_then(|it| Timestamp::from_second(it).ok()).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// Wraps text at that many characters, without cutting words.
pub(crate) fn wrap(text: &str, most: usize, indent: &str) -> String {
    let mut wrapped = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > most {
            wrapped.push('\n');
            wrapped.push_str(indent);
            width = indent.chars().count();
        } else if width > 0 {
            wrapped.push(' ');
            width += 1;
        }
        wrapped.push_str(word);
        width += length;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        for (value, shown) in [
            (2.3456e9, "2.35 GB/s"),
            (23.456e9, "23.5 GB/s"),
            (999.7e6, "1.00 GB/s"),
            (999.4e6, "999 MB/s"),
            (1.3e6, "1.30 MB/s"),
            (12.0, "12.0 B/s"),
            (0.0, "0.000 B/s"),
        ] {
            assert_eq!(Unit::BytesPerSecond.show(value), shown);
        }
        for (value, shown) in [
            (1.5, "1.50 s"),
            (0.01234, "12.3 ms"),
            (457e-6, "457 µs"),
            (12e-9, "12.0 ns"),
            (90.0, "90.0 s"),
        ] {
            assert_eq!(Unit::Seconds.show(value), shown);
        }
    }

    #[test]
    fn sizes_are_whole_numbers_of_a_unit() {
        for (size, long, short) in [
            (1, "1 B", "1"),
            (0, "0 B", "0"),
            (1000, "1000 B", "1000"),
            (8192, "8 KiB", "8k"),
            (1536, "1536 B", "1536"),
            (1 << 20, "1 MiB", "1M"),
            (3 << 30, "3 GiB", "3G"),
        ] {
            assert_eq!((bytes(size).as_str(), short_bytes(size).as_str()), (long, short));
        }
    }

    #[test]
    fn each_statement_is_a_sentence() {
        let said = ["one is 1".to_owned(), "two is 2".to_owned()];
        assert_eq!(sentences(&said).as_deref(), Some("One is 1.\nTwo is 2."));
        assert_eq!(sentences(&[]), None);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_795_325_400, "2026-11-22 05:30 UTC"),
            (4_107_542_399, "2100-02-28 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), shown);
        }
        assert_eq!((change(0.53).as_str(), change(1.126).as_str()), ("-47 %", "+13 %"));
    }
}
