//! Bytes of input as words of the operating system.

use std::ffi::OsString;
use std::fmt;

use pipewright_os::base::error::OneLine;

/// Returns these bytes as a word.
///
/// TO BE REPLACED by a call into the platform crate: there, any bytes are a word on Unix, and Unicode (or WTF-8) on
/// Windows. Without platform code only Unicode can be converted. Callers expect nothing but what the signature says.
pub(crate) fn os_string(bytes: Vec<u8>) -> Result<OsString, NotUnicode> {
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(error) => Err(NotUnicode(error.into_bytes())),
    }
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
