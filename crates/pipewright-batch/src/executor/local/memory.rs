//! The limit on the memory of a job, where this machine can enforce one.

use pipewright::{Error, ErrorKind, LimitKind, Limits};

/// The way in which the memory of jobs is limited. Each refusal leads to the next weaker one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryLimits {
    /// Memory, and no swap: with swap a job could use as much as it likes.
    WithoutSwap,
    /// Memory only.
    Memory,
    /// Nothing: the memory of a job is reserved, and not limited.
    None,
}

impl MemoryLimits {
    /// Returns the limits of a job with that memory.
    pub(super) fn of(self, bytes: Option<u64>) -> Option<Limits> {
        let limits = Limits::new().memory_max(bytes.filter(|bytes| *bytes > 0)?);
        match self {
            MemoryLimits::WithoutSwap => Some(limits.memory_swap_max(0)),
            MemoryLimits::Memory => Some(limits),
            MemoryLimits::None => None,
        }
    }

    /// Returns the next weaker way and the reason, if the error says that a limit cannot be held.
    pub(super) fn weaker(self, error: &Error) -> Option<(MemoryLimits, String)> {
        if self == MemoryLimits::None {
            return None;
        }
        match error.kind() {
            ErrorKind::LimitUnavailable { limit } if limit.limit == LimitKind::Swap => {
                let note = format!("the memory of jobs is limited, and their swap is not: {limit}");
                Some((MemoryLimits::Memory, note))
            }
            ErrorKind::LimitUnavailable { limit } => {
                let note = format!("the memory of jobs is reserved, and not limited: {limit}");
                Some((MemoryLimits::None, note))
            }
            ErrorKind::Unsupported => {
                let note = format!("the memory of jobs is reserved, and not limited: {error}");
                Some((MemoryLimits::None, note))
            }
            _ => None,
        }
    }
}
