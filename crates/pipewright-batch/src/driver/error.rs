//! Errors of the start and of the end.

use std::io;

use crate::journal::LogError;
use crate::output::OutputError;

/// An error of a driver, outside of its jobs.
#[derive(Debug)]
pub(crate) enum DriverError {
    /// No more threads or handles are available.
    Start(io::Error),
    /// The log cannot be used.
    Log(LogError),
    /// Output cannot be stored or printed.
    Output(OutputError),
    /// A process of an earlier run cannot be ended.
    Survivors(io::Error),
}
