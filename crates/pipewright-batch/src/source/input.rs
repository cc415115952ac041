//! Names of inputs, for errors.

use std::fmt;
use std::path::PathBuf;

use pipewright_os::base::error::Quoted;

/// The name of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputName {
    /// The standard input.
    Stdin,
    /// A file.
    File(PathBuf),
    /// The log of a batch.
    Log(PathBuf),
    /// The arguments of the command line: lists after `:::`.
    Arguments,
    /// A reader of the program.
    Reader,
}

impl fmt::Display for InputName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputName::Stdin => f.write_str("stdin"),
            InputName::File(path) => write!(f, "{}", Quoted(path.as_os_str())),
            InputName::Log(path) => write!(f, "log {}", Quoted(path.as_os_str())),
            InputName::Arguments => f.write_str("the arguments"),
            InputName::Reader => f.write_str("the input"),
        }
    }
}
