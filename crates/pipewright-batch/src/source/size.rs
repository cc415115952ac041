//! Sizes as people write them, by the rules of the command line.

/// The expected form of a size, for errors.
pub(super) const EXPECTED: &str = "a number of bytes, or a size such as 512M, 1.5GiB or 2GB";

/// Parses a number of bytes, with `k`, `M` or `G` (also `KiB` ...: by 1024), or `kB`, `MB`, `GB` (by 1000). `None`: it is
/// no size, or too large.
pub(super) fn parse(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let unit_bytes = match unit {
        "" | "B" => 1.0,
        "k" | "K" | "Ki" | "KiB" => 1024.0,
        "m" | "M" | "Mi" | "MiB" => 1024.0 * 1024.0,
        "g" | "G" | "Gi" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    whole(number.parse::<f64>().ok()? * unit_bytes)
}

/// Returns a number without its fraction. `None`: it is negative, or so large that a double is not exact.
pub(super) fn whole(number: f64) -> Option<u64> {
    const MOST: f64 = 9e15;
    (0.0..=MOST).contains(&number).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_parsed() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64k", 65_536),
            ("1MiB", 1 << 20),
            ("2G", 2 << 30),
            ("2GB", 2_000_000_000),
            ("1.5K", 1536),
            ("0", 0),
            ("7B", 7),
            ("1kB", 1000),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn an_invalid_size_is_refused() {
        for text in ["", "-1", "k", "1x", "1 k", "inf", "0x10", "99999999999G", "1e3"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!((whole(-0.5), whole(f64::NAN), whole(2.5)), (None, None, Some(2)));
    }
}
