//! Bytes of input as words of the operating system.

use std::ffi::OsString;
use std::fmt;

use pipewright_os::base::error::OneLine;
use pipewright_os::base::os_text;

/// Returns these bytes as a word. On Unix any bytes are one, on Windows UTF-8.
pub(crate) fn os_string(bytes: Vec<u8>) -> Result<OsString, NotUnicode> {
    os_text::from_bytes(bytes).map_err(NotUnicode)
}

/// An error: these bytes cannot be a word on this system, because they are not Unicode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotUnicode(Vec<u8>);

impl NotUnicode {
    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for NotUnicode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.0);
        write!(f, "not valid UTF-8, so it cannot be an argument here: {}", OneLine(&text))
    }
}

impl std::error::Error for NotUnicode {}
