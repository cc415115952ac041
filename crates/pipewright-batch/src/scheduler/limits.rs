//! Resources: the limits of a batch and the needs of a job.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::num::NonZeroU32;

use super::text::Shown;

/// Resources that all jobs of a batch share.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Slots. Each running job has one slot, and as many slots' worth of CPUs as it needs.
    pub(crate) slots: NonZeroU32,
    /// Memory for all jobs together. `None`: it is not counted, until the machine reports a budget.
    pub(crate) memory_bytes: Option<u64>,
    /// Kinds of tokens. A job names a kind by its index here.
    pub(crate) tokens: Vec<TokenKind>,
}

/// A kind of token, as `link=2`.
#[derive(Clone, Debug)]
pub(crate) struct TokenKind {
    pub(crate) name: Box<str>,
    pub(crate) capacity: u32,
}

/// Resources that a job holds while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Needs {
    pub(crate) cpus: NonZeroU32,
    /// Memory that the job is expected to use. `None`: it counts as none.
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) tokens: Vec<TokenNeed>,
}

/// Tokens of one kind that a job holds while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TokenNeed {
    /// Index of the kind in [`Limits::tokens`].
    pub(crate) kind: usize,
    pub(crate) count: u32,
}

impl Limits {
    /// Returns the needs in a normal form (each kind of token once, in order).
    ///
    /// # Errors
    /// Refuses needs that can never be met, because there is less than that even if nothing else runs.
    pub(crate) fn check(&self, needs: Needs) -> Result<Needs, NeedsError> {
        if needs.cpus > self.slots {
            return Err(NeedsError::Cpus { needed: needs.cpus, slots: self.slots });
        }
        if let (Some(needed), Some(limit)) = (needs.memory_bytes, self.memory_bytes) {
            if needed > limit {
                return Err(NeedsError::Memory { needed, limit });
            }
        }
        let needs = needs.merged();
        for need in &needs.tokens {
            let Some(kind) = self.tokens.get(need.kind) else {
                return Err(NeedsError::UnknownToken { kind: need.kind });
            };
            if need.count > kind.capacity {
                let (name, capacity) = (kind.name.clone(), kind.capacity);
                return Err(NeedsError::Tokens { name, needed: need.count, capacity });
            }
        }
        Ok(needs)
    }
}

impl Needs {
    /// Returns the needs of a job that names none: one CPU.
    #[cfg(test)]
    pub(crate) fn one_cpu() -> Needs {
        Needs { cpus: NonZeroU32::MIN, memory_bytes: None, tokens: Vec::new() }
    }

    fn merged(mut self) -> Needs {
        self.tokens.sort_unstable();
        self.tokens.dedup_by(|later, kept| {
            let is_same = later.kind == kept.kind;
            if is_same {
                kept.count = kept.count.saturating_add(later.count);
            }
            is_same
        });
        self.tokens.retain(|need| need.count > 0);
        self.memory_bytes = self.memory_bytes.filter(|bytes| *bytes > 0);
        self
    }
}

/// Needs that can never be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NeedsError {
    /// More CPUs than slots.
    Cpus { needed: NonZeroU32, slots: NonZeroU32 },
    /// More memory than all jobs together may use.
    Memory { needed: u64, limit: u64 },
    /// A kind of token that the batch does not have.
    UnknownToken { kind: usize },
    /// More tokens than there are of that kind.
    Tokens { name: Box<str>, needed: u32, capacity: u32 },
}

impl Display for NeedsError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            NeedsError::Cpus { needed, slots } => {
                write!(f, "needs {needed} CPUs, and the batch has {slots}: allow more jobs at once")
            }
            NeedsError::Memory { needed, limit } => {
                write!(f, "needs {needed} bytes of memory, and the batch may use {limit}")
            }
            NeedsError::UnknownToken { kind } => {
                write!(f, "needs tokens of kind {kind}, and the batch has no such kind")
            }
            NeedsError::Tokens { name, needed, capacity } => {
                write!(f, "needs {needed} tokens {}, and the batch has {capacity}", Shown(name))
            }
        }
    }
}

impl Error for NeedsError {}
