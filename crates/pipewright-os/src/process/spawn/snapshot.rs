//! This process's environment at the moment of a start.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// A snapshot of this process's environment, for [`Env::Inherit`](super::Env::Inherit).
///
/// # Platform
/// Unix: a copy made by [`std::env::vars_os`]. `environ` itself must not be read while another
/// thread may be in [`std::env::set_var`]: the C library moves and frees the array, std's lock
/// around it is private, and the safety rule of `set_var` allows readers through `std::env` only.
/// The copy keeps the order and keeps duplicates. It lacks entries without a `=` after their first
/// byte, which std does not return.
///
/// Windows: empty. `CreateProcessW` copies the environment itself, under the lock that
/// `SetEnvironmentVariableW` takes.
pub struct EnvSnapshot {
    #[cfg(unix)]
    variables: Vec<(OsString, OsString)>,
}

impl EnvSnapshot {
    /// Takes the snapshot.
    #[must_use]
    pub fn take() -> EnvSnapshot {
        EnvSnapshot {
            #[cfg(unix)]
            variables: std::env::vars_os().collect(),
        }
    }

    /// Returns the `PATH` in the snapshot. With duplicates that is the first, as in getenv(3).
    ///
    /// # Platform
    /// Windows: `None`; the search reads the variable itself.
    #[must_use]
    pub fn search_path(&self) -> Option<&OsStr> {
        let named = |(name, _): &&(OsString, OsString)| name == "PATH";
        self.variables().iter().find(named).map(|(_, value)| value.as_os_str())
    }

    #[cfg(unix)]
    pub(super) fn variables(&self) -> &[(OsString, OsString)] {
        &self.variables
    }

    #[cfg(windows)]
    fn variables(&self) -> &[(OsString, OsString)] {
        &[]
    }
}

/// Leaves the values out: they may be secrets.
impl fmt::Debug for EnvSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvSnapshot").finish_non_exhaustive()
    }
}
