//! Operations on OS strings, which need not be Unicode.

use std::ffi::{OsStr, OsString};

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

/// Returns true if the text ends with `end`, ignoring the case of ASCII letters.
#[cfg(all(feature = "process", any(windows, test)))]
pub(crate) fn ends_with(text: &[u16], end: &str) -> bool {
    let at = text.len().checked_sub(end.len());
    let last = at.and_then(|at| text.get(at..)).map(String::from_utf16_lossy);
    last.is_some_and(|last| last.eq_ignore_ascii_case(end))
}

#[cfg(all(test, feature = "process"))]
mod tests {
    use super::ends_with;

    #[test]
    fn the_end_of_a_text_is_compared_without_case() {
        let ends = |text: &str, end| ends_with(&text.encode_utf16().collect::<Vec<_>>(), end);
        assert!(ends("a.ExE", ".exe"));
        assert!(!ends("exe", ".exe"));
        assert!(!ends("a.exe.", ".exe"));
    }
}
