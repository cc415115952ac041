//! Sizes as people write them.

/// Parses a number of bytes, with `k`, `M` or `G` (also `KiB` ...: by 1024), or `kB`, `MB`, `GB` (by 1000).
pub(super) fn parse(text: &str) -> Result<usize, String> {
    let refuse = || format!("\"{text}\" is not a size: write 4096, 64k, 1MiB or 2GB");
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(refuse());
    }
    let unit_bytes = match unit {
        "" | "B" => 1.0,
        "k" | "K" | "Ki" | "KiB" => 1024.0,
        "m" | "M" | "Mi" | "MiB" => 1024.0 * 1024.0,
        "g" | "G" | "Gi" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return Err(refuse()),
    };
    let bytes = number.parse::<f64>().map_err(|_| refuse())? * unit_bytes;
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
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn an_invalid_size_is_refused() {
        for text in ["", "-1", "k", "1x", "1 k", "inf", "0x10", "99999999999G"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
