//! The errors of a terminal that could not be opened.

use std::error::Error;
use std::fmt;
use std::io;

/// The error of a terminal that could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// The problem.
    pub problem: OpenProblem,
    /// The system's error.
    pub source: io::Error,
}

/// The reason why no terminal could be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpenProblem {
    /// This machine, container or root directory has no pseudo-terminals: no `/dev/ptmx`, no mounted devpts, a Windows
    /// before 1809.
    Missing,
    /// All pseudo-terminals are in use: `/proc/sys/kernel/pty/max`, or the option `max` of a devpts.
    Exhausted,
    /// Another error of the system.
    Other,
}

impl OpenError {
    pub(super) fn new(problem: OpenProblem, source: io::Error) -> OpenError {
        OpenError { problem, source }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.problem {
            OpenProblem::Missing => "this system has no pseudo-terminals",
            OpenProblem::Exhausted => "too many terminals",
            OpenProblem::Other => "cannot open a terminal",
        };
        write!(f, "{words}: {}", self.source)
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}
