//! Changes of the environment, with std's rules.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ffi::{OsStr, OsString};

/// What a command changes about the environment that its child inherits.
#[derive(Debug, Clone, Default)]
pub(super) struct EnvChanges {
    clear: bool,
    variables: BTreeMap<OsString, Option<OsString>>,
}

/// The environment variables that a command sets or removes, from
/// [`Command::get_envs`](crate::Command::get_envs).
#[derive(Debug, Clone)]
pub struct CommandEnvs<'a>(btree_map::Iter<'a, OsString, Option<OsString>>);

impl EnvChanges {
    pub(super) fn set(&mut self, key: &OsStr, value: &OsStr) {
        self.variables.insert(key.to_owned(), Some(value.to_owned()));
    }

    pub(super) fn remove(&mut self, key: &OsStr) {
        if self.clear {
            self.variables.remove(key);
        } else {
            self.variables.insert(key.to_owned(), None);
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

    /// The child's whole environment; `None` where it is ours unchanged.
    pub(super) fn whole(&self) -> Option<Vec<(OsString, OsString)>> {
        if !self.clear && self.variables.is_empty() {
            return None;
        }
        let mut whole = BTreeMap::new();
        if !self.clear {
            whole.extend(std::env::vars_os());
        }
        for (key, value) in &self.variables {
            match value {
                Some(value) => whole.insert(key.clone(), value.clone()),
                None => whole.remove(key),
            };
        }
        Some(whole.into_iter().collect())
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
