//! Environment changes, with std's rules.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::slice;

use pipewright_os::process::start::{Env, EnvSnapshot, REQUIRED_VARIABLES, Search, compare_names};

/// The changes that a command makes to the environment of its child.
#[derive(Debug, Clone, Default)]
pub(super) struct EnvChanges {
    clear: bool,
    /// Sorted by name, each name once. For so few entries a vector is faster than a map.
    variables: Vec<(OsString, Option<OsString>)>,
}

/// The environment variables that a command sets or removes, from
/// [`Command::get_envs`](crate::Command::get_envs).
#[derive(Clone)]
pub struct CommandEnvs<'a>(slice::Iter<'a, (OsString, Option<OsString>)>);

/// The complete environment of one child.
#[derive(Debug)]
pub(super) enum ChildEnv {
    /// This process's environment, unchanged.
    Inherited(EnvSnapshot),
    /// The changed environment, sorted by name.
    Changed(Vec<(OsString, OsString)>),
}

impl ChildEnv {
    pub(super) fn as_plan(&self) -> Env<'_> {
        match self {
            ChildEnv::Inherited(own) => Env::Inherit(own),
            ChildEnv::Changed(variables) => Env::Exactly(variables),
        }
    }

    /// Returns the search path for a program name without a separator: the child's `PATH`, as in std.
    pub(super) fn search(&self) -> Search<'_> {
        let path = match self {
            ChildEnv::Inherited(own) => own.search_path(),
            ChildEnv::Changed(variables) => find(variables, OsStr::new("PATH"))
                .ok()
                .and_then(|at| variables.get(at))
                .map(|(_, value)| value.as_os_str()),
        };
        path.map_or(Search::Default, Search::Path)
    }
}

impl EnvChanges {
    pub(super) fn set(&mut self, key: &OsStr, value: &OsStr) {
        put(&mut self.variables, key, Some(value.to_owned()));
    }

    pub(super) fn remove(&mut self, key: &OsStr) {
        if !self.clear || survives_clear(key) {
            put(&mut self.variables, key, None);
        } else if let Ok(at) = find(&self.variables, key) {
            self.variables.remove(at);
        }
    }

    pub(super) fn clear(&mut self) {
        self.clear = true;
        self.variables.clear();
    }

    pub(super) fn is_clear(&self) -> bool {
        self.clear
    }

    pub(super) fn changes(&self) -> CommandEnvs<'_> {
        CommandEnvs(self.variables.iter())
    }

    /// Builds the child's environment. It reads this process's environment once, and only through `std::env`: std's
    /// lock is private, and reading without it may read freed memory.
    pub(super) fn apply(&self) -> ChildEnv {
        if !self.clear && self.variables.is_empty() {
            return ChildEnv::Inherited(EnvSnapshot::take());
        }
        let mut whole = Vec::new();
        if self.clear {
            for key in REQUIRED_VARIABLES {
                if let Some(value) = std::env::var_os(key) {
                    put(&mut whole, OsStr::new(key), value);
                }
            }
        } else {
            for (key, value) in std::env::vars_os() {
                put(&mut whole, &key, value);
            }
        }
        for (key, value) in &self.variables {
            match value {
                Some(value) => put(&mut whole, key, value.clone()),
                None => drop(find(&whole, key).map(|at| whole.remove(at))),
            }
        }
        ChildEnv::Changed(whole)
    }
}

fn find<T>(variables: &[(OsString, T)], key: &OsStr) -> Result<usize, usize> {
    variables.binary_search_by(|(name, _)| compare_names(name, key))
}

/// Returns true if `env_clear` keeps this variable; only `env_remove` by name removes it.
fn survives_clear(key: &OsStr) -> bool {
    REQUIRED_VARIABLES.iter().any(|name| compare_names(OsStr::new(name), key).is_eq())
}

fn put<T>(variables: &mut Vec<(OsString, T)>, key: &OsStr, value: T) {
    match find(variables, key) {
        Ok(at) => variables[at].1 = value,
        Err(at) => variables.insert(at, (key.to_owned(), value)),
    }
}

impl<'a> Iterator for CommandEnvs<'a> {
    type Item = (&'a OsStr, Option<&'a OsStr>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key.as_os_str(), value.as_deref()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for CommandEnvs<'_> {}

impl fmt::Debug for CommandEnvs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Like std's derived one.
        let changes: Vec<_> = self.clone().collect();
        f.debug_struct("CommandEnvs").field("iter", &changes).finish()
    }
}
