//! Sizes as people write them.

use super::number;

/// Parses a number of bytes, with `k`, `M`, `G` or `T` (also `KiB` ...: by 1024), or `kB`, `MB`, `GB`, `TB` (by 1000), in any
/// case.
pub(super) fn parse(text: &str) -> Result<usize, String> {
    let refuse = || format!("\"{text}\" is not a size: write 4096, 64k, 1MiB or 2GB");
    let (number, unit) = number::split(text).ok_or_else(refuse)?;
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
        _ => return Err(refuse()),
    };
    let bytes = number * unit_bytes;
    // Integers up to this are exact in a double, and no machine has more memory.
    const MOST_BYTES: f64 = 9e15;
    if bytes > MOST_BYTES {
        return Err(format!("\"{text}\" is too large"));
    }
    Ok(bytes as usize)
}

/// Parses a size of at least one byte.
pub(super) fn parse_some(text: &str) -> Result<usize, String> {
    match parse(text)? {
        0 => Err("must be at least 1 byte".to_owned()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn every_unit_is_parsed() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64k", 65_536),
            ("1MiB", 1 << 20),
            ("2GB", 2_000_000_000),
            ("1.5K", 1536),
            ("0", 0),
            ("7B", 7),
            ("1kB", 1000),
            ("1KiB", 1024),
            ("1kib", 1024),
            ("1mb", 1_000_000),
            (".5M", 1 << 19),
            ("2.34e5", 234_000),
            ("1e3k", 1_024_000),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn an_invalid_size_is_refused() {
        for text in ["", "-1", "k", "1x", "inf", "0x10", "99999999999G", "1e300", "1 k", "k1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
