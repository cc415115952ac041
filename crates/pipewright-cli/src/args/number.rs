//! Numbers as people write them, followed by a unit.

/// Splits a number from the text behind it: digits with a point, and an exponent as in `2.34e5`. Signs, infinities and NaN
/// are no numbers here.
pub(super) fn split(text: &str) -> Option<(f64, &str)> {
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

/// Parses a count, such as that of retries.
pub(super) fn count(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(count) if digits => Ok(count),
        _ if digits => Err(format!("\"{text}\" is too large")),
        _ => Err(format!("\"{text}\" is not a whole number: write 0, 1, 2 ...")),
    }
}

/// Parses the permissions of a umask.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    let is_octal = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| format!("\"{text}\" is not a mode: write 022 or 077"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(split(text), Some((number, unit)), "{text}");
        }
        for text in ["", ".", "e5", "-1", "+1", "inf", "NaN", " 1", "\u{b5}"] {
            assert_eq!(split(text), None, "{text}");
        }
    }

    #[test]
    fn a_mode_is_octal() {
        assert_eq!((mode("022"), mode("0"), mode("777")), (Ok(0o22), Ok(0), Ok(0o777)));
        for text in ["", "8", "-1", "+7", "1000", "u=rwx"] {
            assert!(mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_count_is_digits() {
        assert_eq!(count("30"), Ok(30));
        for text in ["", "abc", "-1", "+1", "1.5", "1k"] {
            let words = format!("\"{text}\" is not a whole number: write 0, 1, 2 ...");
            assert_eq!(count(text), Err(words));
        }
        assert_eq!(count("99999999999"), Err("\"99999999999\" is too large".to_owned()));
    }
}
