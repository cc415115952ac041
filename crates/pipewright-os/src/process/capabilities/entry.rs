//! Entries of the list, the same on every platform.

use std::io;

use super::{Facility, State};

/// The texts of a facility.
pub(super) struct About {
    pub(super) used_for: &'static str,
    pub(super) without: &'static str,
    pub(super) needs: &'static str,
}

pub(super) fn facility(name: &'static str, found: io::Result<String>, about: About) -> Facility {
    let state = match found {
        Ok(detail) => State::Available(detail),
        Err(error) => State::Missing(error.to_string()),
    };
    let About { used_for, without, needs } = about;
    Facility { name, state, used_for, without, needs }
}

pub(super) fn value(name: &'static str, text: String, used_for: &'static str) -> Facility {
    Facility { name, state: State::Value(text), used_for, without: "", needs: "" }
}

/// Returns the number of handles that this process may have open.
#[cfg(unix)]
pub(super) fn open_files() -> String {
    limit_text(rustix::process::Resource::Nofile)
}

/// Returns the number of processes that this user may have.
#[cfg(unix)]
pub(super) fn processes() -> String {
    limit_text(rustix::process::Resource::Nproc)
}

#[cfg(unix)]
fn limit_text(resource: rustix::process::Resource) -> String {
    let limit = rustix::process::getrlimit(resource).current;
    limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string())
}
