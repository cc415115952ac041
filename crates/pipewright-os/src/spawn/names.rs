//! The names of environment variables.

use std::cmp::Ordering;
use std::ffi::OsStr;

#[cfg(not(windows))]
pub(super) const LASTING: &[&str] = &[];

#[cfg(windows)]
pub(super) const LASTING: &[&str] = &["SystemRoot"];

#[cfg(not(windows))]
pub(super) fn compare(one: &OsStr, other: &OsStr) -> Ordering {
    one.cmp(other)
}

#[cfg(windows)]
pub(super) use super::windows::compare_names as compare;
