//! Memory for secrets.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as imp;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as imp;

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

/// Bytes that are not written into core files, and are overwritten when they are dropped.
///
/// # Platform
/// Linux: pages of their own, with `madvise(MADV_DONTDUMP)`. Elsewhere they are only overwritten.
///
/// ```
/// # use pipewright_os::base::undumped::UndumpedBytes;
/// let mut key = UndumpedBytes::zeroed(32)?;
/// key[0] = 7;
/// assert_eq!((key.len(), key[0], key[1]), (32, 7, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UndumpedBytes(imp::Memory);

impl UndumpedBytes {
    /// Allocates that many zeros.
    ///
    /// # Errors
    /// No memory is available.
    pub fn zeroed(bytes: usize) -> io::Result<UndumpedBytes> {
        imp::Memory::zeroed(bytes).map(UndumpedBytes)
    }
}

impl Deref for UndumpedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for UndumpedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl Drop for UndumpedBytes {
    fn drop(&mut self) {
        for byte in self.0.bytes_mut() {
            // SAFETY: a reference can be written to. Volatile, because nothing reads the zeros.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }
}

impl fmt::Debug for UndumpedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndumpedBytes").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_and_not_printed() {
        let mut bytes = UndumpedBytes::zeroed(5000).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes[4999] = 255;
        assert_eq!(bytes[4999], 255);
        assert!(!format!("{bytes:?}").contains("255"));
        assert!(UndumpedBytes::zeroed(0).unwrap().is_empty());
    }
}
