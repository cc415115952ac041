//! Operations on OS strings, which need not be Unicode.

use std::ffi::{OsStr, OsString};

/// True if the lines of a text file usually end with CR and LF. On Unix, CR belongs to the line.
pub const LINES_END_WITH_CRLF: bool = cfg!(windows);

/// Splits at the first `separator`. `None`: there is none, or `separator` is not ASCII.
///
/// ```
/// # use pipewright_os::base::os_text::split_once;
///
/// let pair = split_once("PATH=/bin=".as_ref(), b'=');
/// assert_eq!(pair, Some(("PATH".as_ref(), "/bin=".as_ref())));
/// assert_eq!(split_once("PATH".as_ref(), b'='), None);
/// ```
#[must_use]
pub fn split_once(text: &OsStr, separator: u8) -> Option<(&OsStr, &OsStr)> {
    let bytes = text.as_encoded_bytes();
    let at = bytes.iter().position(|byte| *byte == separator && byte.is_ascii())?;
    let (before, rest) = bytes.split_at(at);
    let (_, after) = rest.split_first()?;
    // SAFETY: the bytes of an `OsStr`, cut before an ASCII character.
    let before = unsafe { OsStr::from_encoded_bytes_unchecked(before) };
    // SAFETY: the bytes of an `OsStr`, cut after an ASCII character.
    let after = unsafe { OsStr::from_encoded_bytes_unchecked(after) };
    Some((before, after))
}

/// Returns these bytes as text of the system.
///
/// # Platform
/// Unix: any bytes. Windows: UTF-8.
///
/// # Errors
/// The bytes, if they cannot be text here.
///
/// ```
/// # use pipewright_os::base::os_text::from_bytes;
/// assert_eq!(from_bytes(b"plain".to_vec()).unwrap(), "plain");
/// assert_eq!(from_bytes(vec![0xff]).is_ok(), cfg!(unix));
/// ```
pub fn from_bytes(bytes: Vec<u8>) -> Result<OsString, Vec<u8>> {
    #[cfg(unix)]
    return Ok(std::os::unix::ffi::OsStringExt::from_vec(bytes));
    #[cfg(not(unix))]
    String::from_utf8(bytes).map(OsString::from).map_err(std::string::FromUtf8Error::into_bytes)
}

/// Returns the text whose encoded bytes ([`OsStr::as_encoded_bytes`]) these are. For bytes that were kept in a file.
///
/// # Platform
/// Unix: any bytes. Windows: UTF-8, and a surrogate without its pair as the three bytes that UTF-8 would give it
/// (WTF-8).
///
/// # Errors
/// The bytes, if no text has them.
///
/// ```
/// # use pipewright_os::base::os_text::from_encoded_bytes;
/// let text = std::env::args_os().next().unwrap_or_default();
/// assert_eq!(from_encoded_bytes(text.as_encoded_bytes().to_vec()), Ok(text));
/// ```
pub fn from_encoded_bytes(bytes: Vec<u8>) -> Result<OsString, Vec<u8>> {
    #[cfg(not(windows))]
    return from_bytes(bytes);
    #[cfg(windows)]
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.into()),
        Err(_) => {
            let units = wide(&bytes).unwrap_or_default();
            let text: OsString = std::os::windows::ffi::OsStringExt::from_wide(&units);
            // Two surrogates that are a pair have other bytes, and so has no text at all.
            if text.as_encoded_bytes() == bytes { Ok(text) } else { Err(bytes) }
        }
    }
}

/// Returns the UTF-16 of WTF-8.
#[cfg(any(windows, test))]
fn wide(bytes: &[u8]) -> Option<Vec<u16>> {
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        let valid = match std::str::from_utf8(rest) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(rest.get(..error.valid_up_to())?).ok()?,
        };
        units.extend(valid.encode_utf16());
        rest = rest.get(valid.len()..)?;
        match *rest {
            [] => {}
            [0xed, second @ 0xa0..=0xbf, third @ 0x80..=0xbf, ..] => {
                let low = u16::from(second & 0x3f) << 6 | u16::from(third & 0x3f);
                units.push(0xd000 | low);
                rest = rest.get(3..)?;
            }
            _ => return None,
        }
    }
    Some(units)
}

/// Returns true if the text ends with `end`, ignoring the case of ASCII letters.
#[cfg(all(feature = "process", any(windows, test)))]
pub(crate) fn ends_with(text: &[u16], end: &str) -> bool {
    let at = text.len().checked_sub(end.len());
    let last = at.and_then(|at| text.get(at..)).map(String::from_utf16_lossy);
    last.is_some_and(|last| last.eq_ignore_ascii_case(end))
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "process")]
    use super::ends_with;
    use super::{from_encoded_bytes, wide};

    #[test]
    fn surrogates_without_a_pair_are_read_back() {
        assert_eq!(wide(b"a\xed\xa0\x80\xed\xb0\x81"), Some(vec![0x61, 0xd800, 0xdc01]));
        assert_eq!(wide("\u{10000}\u{d7ff}".as_bytes()), Some(vec![0xd800, 0xdc00, 0xd7ff]));
        assert_eq!(wide(b"\xff"), None);
        assert_eq!(wide(b"\xed\xa0"), None);
    }

    #[test]
    fn encoded_bytes_are_read_back() {
        for text in ["", "plain", "\u{e9}\n"] {
            assert_eq!(from_encoded_bytes(text.into()), Ok(text.into()));
        }
        assert_eq!(from_encoded_bytes(vec![0xff]).is_ok(), !cfg!(windows));
    }

    #[cfg(windows)]
    #[test]
    fn text_that_is_not_unicode_is_read_back() {
        use std::ffi::OsString;
        use std::os::windows::ffi::OsStringExt;
        let text = OsString::from_wide(&[0x61, 0xd800, 0x62, 0xdc01]);
        assert_eq!(from_encoded_bytes(text.as_encoded_bytes().to_vec()), Ok(text));
    }

    #[cfg(feature = "process")]
    #[test]
    fn the_end_of_a_text_is_compared_without_case() {
        let ends = |text: &str, end| ends_with(&text.encode_utf16().collect::<Vec<_>>(), end);
        assert!(ends("a.ExE", ".exe"));
        assert!(!ends("exe", ".exe"));
        assert!(!ends("a.exe.", ".exe"));
    }
}
