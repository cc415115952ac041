//! Errors: a benchmark that cannot be prepared, measured, shown or saved.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A failed benchmark, in one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An option has a value that cannot be used.
    Option {
        /// The option as the tool spells it, such as `--only`.
        option: String,
        /// The reason.
        problem: String,
    },
    /// Two reports have the same file.
    SameFile(PathBuf),
    /// A report cannot be written.
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An older report cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file is not a report that can be compared with.
    NotAReport {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
    /// A report cannot be written as JSON.
    Json(serde_json::Error),
    /// A child process was given wrong arguments, or failed.
    Child(io::Error),
    /// The received data differ from the sent data, so no figure of this run can be trusted.
    Corrupt {
        /// The cell: the name of its curve and its label.
        cell: String,
        /// The difference.
        problem: String,
    },
    /// No cell could be measured.
    NothingMeasured(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Option { option, problem } => write!(f, "{option}: {problem}"),
            Error::SameFile(path) => write!(f, "two reports would go to \"{}\"", path.display()),
            Error::Write { path, source } => {
                write!(f, "cannot write \"{}\": {source}", path.display())
            }
            Error::Read { path, source } => {
                write!(f, "cannot compare with \"{}\": {source}", path.display())
            }
            Error::NotAReport { path, problem } => {
                write!(f, "cannot compare with \"{}\": {problem}", path.display())
            }
            Error::Json(source) => write!(f, "cannot write JSON: {source}"),
            Error::Child(source) => write!(f, "child process of a benchmark: {source}"),
            Error::Corrupt { cell, problem } => write!(f, "{cell}: {problem}"),
            Error::NothingMeasured(reason) => write!(f, "nothing was measured: {reason}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Write { source, .. } | Error::Read { source, .. } | Error::Child(source) => {
                Some(source)
            }
            Error::Json(source) => Some(source),
            _ => None,
        }
    }
}
