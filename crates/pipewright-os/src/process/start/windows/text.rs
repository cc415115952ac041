//! Conversions between std's strings and UTF-16.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::os::windows::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use windows_sys::Win32::Globalization::{CSTR_EQUAL, CSTR_LESS_THAN, CompareStringOrdinal};

use crate::process::start::wide::Variable;

pub(super) fn wide(text: &OsStr) -> Vec<u16> {
    text.encode_wide().collect()
}

pub(super) fn path(text: &[u16]) -> PathBuf {
    PathBuf::from(OsString::from_wide(text))
}

/// Appends the NUL that the calls require.
pub(super) fn nul_terminated(mut text: Vec<u16>) -> Vec<u16> {
    text.push(0);
    text
}

pub(super) fn variables(variables: &[(OsString, OsString)]) -> Vec<Variable> {
    variables.iter().map(|(name, value)| (wide(name), wide(value))).collect()
}

/// Compares names of variables and files as the system does: independent of the language, ignoring case.
pub(super) fn compare(one: &[u16], other: &[u16]) -> Ordering {
    let length = |text: &[u16]| i32::try_from(text.len());
    let (Ok(one_length), Ok(other_length)) = (length(one), length(other)) else {
        return one.cmp(other);
    };
    // SAFETY: strings of the given lengths.
    let order =
        unsafe { CompareStringOrdinal(one.as_ptr(), one_length, other.as_ptr(), other_length, 1) };
    match order {
        CSTR_LESS_THAN => Ordering::Less,
        CSTR_EQUAL => Ordering::Equal,
        _ => Ordering::Greater,
    }
}

pub(in super::super) fn compare_names(one: &OsStr, other: &OsStr) -> Ordering {
    let (bytes, others) = (one.as_encoded_bytes(), other.as_encoded_bytes());
    if bytes.is_ascii() && others.is_ascii() {
        // For nearly every name: the same order, without a copy.
        let capitals = bytes.iter().map(u8::to_ascii_uppercase);
        return capitals.cmp(others.iter().map(u8::to_ascii_uppercase));
    }
    compare(&wide(one), &wide(other))
}
