//! The error of a batch.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use pipewright_os::base::error::{OneLine, Quoted};

use crate::driver::DriverError;
use crate::journal::LogError;
use crate::output::OutputError;

/// An error of a batch itself. Jobs that fail are no errors. Prints as one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum BatchError {
    /// No more threads or handles are available.
    Start(io::Error),
    /// The executor has failed. Jobs that ran are not known any more.
    Executor(io::Error),
    /// The log cannot be used.
    Log(LogError),
    /// Output of jobs cannot be stored or printed.
    Output(OutputError),
    /// A process of an earlier run cannot be ended.
    Survivors(io::Error),
    /// A report cannot be written.
    #[non_exhaustive]
    Report {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl From<DriverError> for BatchError {
    fn from(error: DriverError) -> BatchError {
        match error {
            DriverError::Start(error) => BatchError::Start(error),
            DriverError::Log(error) => BatchError::Log(error),
            DriverError::Output(error) => BatchError::Output(error),
            DriverError::Survivors(error) => BatchError::Survivors(error),
        }
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operation, source) = match self {
            BatchError::Start(source) => ("start the batch", source),
            BatchError::Executor(source) => ("wait for the jobs", source),
            BatchError::Survivors(source) => ("end the processes of an earlier run", source),
            BatchError::Report { path, source } => {
                let (path, source) = (Quoted(path.as_os_str()), source.to_string());
                return write!(f, "cannot write {path}: {}", OneLine(&source));
            }
            BatchError::Log(error) => return write!(f, "{error}"),
            BatchError::Output(error) => return write!(f, "{error}"),
        };
        write!(f, "cannot {operation}: {}", OneLine(&source.to_string()))
    }
}

impl Error for BatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BatchError::Start(source)
            | BatchError::Executor(source)
            | BatchError::Survivors(source)
            | BatchError::Report { source, .. } => Some(source),
            BatchError::Log(error) => error.source(),
            BatchError::Output(error) => error.source(),
        }
    }
}
