//! Results of the calls, in words.

use std::io;

use super::{Facility, State};

pub(super) fn facility(
    name: &'static str,
    found: io::Result<String>,
    used_for: &'static str,
) -> Facility {
    let state = match found {
        Ok(detail) => State::Available(detail),
        Err(error) => State::Missing(error.to_string()),
    };
    Facility { name, state, used_for }
}

pub(super) fn value(name: &'static str, text: String, used_for: &'static str) -> Facility {
    Facility { name, state: State::Value(text), used_for }
}

/// Returns the number of handles that this process may have open.
pub(super) fn open_files() -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live struct.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit_text(result, limit.rlim_cur)
}

/// Returns the number of processes that this user may have.
pub(super) fn processes() -> String {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live struct.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit) };
    limit_text(result, limit.rlim_cur)
}

fn limit_text(result: libc::c_int, limit: libc::rlim_t) -> String {
    match limit {
        _ if result != 0 => io::Error::last_os_error().to_string(),
        libc::RLIM_INFINITY => "no limit".to_owned(),
        number => number.to_string(),
    }
}
