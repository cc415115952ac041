//! Numbers as text, for a process that may not allocate.

use std::ffi::CStr;

/// A number as a C string, made without an allocation.
pub(super) struct Digits([u8; Digits::BYTES]);

impl Digits {
    /// The size: ten digits and a NUL.
    const BYTES: usize = 11;

    pub(super) fn of(number: i32) -> Digits {
        let mut digits = [0; Digits::BYTES];
        let mut left = number.unsigned_abs();
        for digit in digits.iter_mut().rev().skip(1) {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        Digits(digits)
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_zero_padded_decimal() {
        let text = |number| Digits::of(number).0;
        assert_eq!(&text(0), b"0000000000\0");
        assert_eq!(&text(4_194_304), b"0004194304\0");
        assert_eq!(&text(i32::MAX), b"2147483647\0");
    }
}
