//! The error of a batch.

use std::fmt;
use std::io;

use pipewright_os::base::error::OneLine;

/// An error of a batch itself. Jobs that fail are no errors.
pub struct BatchError {
    operation: &'static str,
    source: io::Error,
}

impl BatchError {
    pub(super) fn start(source: io::Error) -> BatchError {
        BatchError { operation: "start the batch", source }
    }

    pub(super) fn executor(source: io::Error) -> BatchError {
        BatchError { operation: "wait for the jobs", source }
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.operation, OneLine(&self.source.to_string()))
    }
}

impl fmt::Debug for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for BatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
