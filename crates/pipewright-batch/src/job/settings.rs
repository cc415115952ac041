//! The settings of a job that have defaults.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::{JobStdin, Resources};

/// The settings of a job that have defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) name: Option<String>,
    pub(super) current_dir: Option<PathBuf>,
    /// Sorted, so that the order of the setters is no part of the identity.
    pub(super) env: BTreeMap<OsString, Option<OsString>>,
    pub(super) stdin: JobStdin,
    pub(super) after: Vec<String>,
    pub(super) resources: Resources,
    pub(super) timeout: Option<Duration>,
    pub(super) retries: Option<u32>,
    pub(super) once: Option<bool>,
}

impl Settings {
    pub(super) const fn new() -> Settings {
        Settings {
            name: None,
            current_dir: None,
            env: BTreeMap::new(),
            stdin: JobStdin::Null,
            after: Vec::new(),
            resources: Resources::new(),
            timeout: None,
            retries: None,
            once: None,
        }
    }
}
