//! The memory where an executor runs its attempts.

use std::time::Duration;

/// The memory where an executor runs its attempts, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineMemory {
    /// The memory that is free, in bytes.
    pub free_bytes: u64,
    /// The time for which a process has waited for memory, since some moment in the past; `None` if it is unknown.
    pub stalled: Option<Duration>,
}

impl MachineMemory {
    /// Creates one without the time of waits.
    #[must_use]
    pub fn new(free_bytes: u64) -> MachineMemory {
        MachineMemory { free_bytes, stalled: None }
    }
}
