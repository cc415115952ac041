//! The resources that a job takes while it runs.

use std::collections::BTreeMap;

/// The resources that a job takes while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resources {
    /// The number of processors, at least 1.
    pub cpus: u32,
    /// The memory, if the job states it.
    pub mem_bytes: Option<u64>,
    /// The memory up to which the job is tried again with more when it ran out of memory.
    pub most_mem_bytes: Option<u64>,
    /// The number of tokens of each name.
    pub tokens: BTreeMap<String, u32>,
}

impl Resources {
    pub(super) const fn new() -> Resources {
        Resources { cpus: 1, mem_bytes: None, most_mem_bytes: None, tokens: BTreeMap::new() }
    }
}

impl Default for Resources {
    /// Returns one processor, and nothing else.
    fn default() -> Resources {
        Resources::new()
    }
}
