//! Text of the system's own kind, which need not be Unicode, taken apart.

use std::ffi::OsStr;

/// What stands before and after the first `separator`. `None`: there is none, or `separator` is no ASCII.
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
