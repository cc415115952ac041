//! Sizes as people write them.

/// A number of bytes, with `k`, `M` or `G` (also `KiB` ...: by 1024), or `kB`, `MB`, `GB` (by 1000).
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
    // Whole numbers up to here are exact in a double; more memory than that is not to be had.
    const MOST_BYTES: f64 = 9e15;
    if bytes > MOST_BYTES {
        return Err(format!("\"{text}\" is too large"));
    }
    Ok(bytes as usize)
}

/// The same, and at least one byte.
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
    fn sizes_are_read_as_people_write_them() {
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
    fn nonsense_is_refused_with_what_to_write() {
        for text in ["", "-1", "k", "1x", "1 k", "inf", "0x10", "99999999999G"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
