//! The names of environment variables.

#[cfg(not(windows))]
mod imp {
    use std::cmp::Ordering;
    use std::ffi::OsStr;

    pub(in super::super) const REQUIRED: &[&str] = &[];

    pub(in super::super) fn compare(one: &OsStr, other: &OsStr) -> Ordering {
        one.cmp(other)
    }
}

#[cfg(windows)]
mod imp {
    pub(in super::super) use super::super::windows::compare_names as compare;

    pub(in super::super) const REQUIRED: &[&str] = &["SystemRoot"];
}

pub(super) use imp::{REQUIRED, compare};
