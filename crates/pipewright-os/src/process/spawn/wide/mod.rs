//! The UTF-16 texts that `CreateProcessW` takes.
//!
//! Nothing in here calls the system, so its tests run on every system.
//!
//! | file | contents |
//! |---|---|
//! | `command_line.rs` | arguments as a C library splits them |
//! | `batch.rs` | arguments of a batch file, which `cmd.exe` parses first |
//! | `environment.rs` | the environment |
//! | `search.rs` | the search for a program |
//! | `path.rs` | the kind of a path, found without asking the system |

pub(crate) mod batch;
pub(crate) mod command_line;
pub(crate) mod environment;
pub(crate) mod path;
pub(crate) mod search;

#[cfg(test)]
pub(crate) mod oracle;

use super::BadInput;

/// The maximum length of a command line for `CreateProcessW`, in units, including its NUL.
const MAX_UNITS: usize = 32_767;

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arg {
    /// The program has to get it unchanged among its arguments.
    Plain(Vec<u16>),
    /// It goes on the command line unchanged.
    Raw(Vec<u16>),
}

/// The reason why there is no command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandLineError {
    /// It would be too long for its reader.
    TooLong,
    /// It would mean something else.
    Bad(BadInput),
}

/// Returns the line, if it and a NUL fit.
fn check_length(line: Vec<u16>, most_units: usize) -> Result<Vec<u16>, CommandLineError> {
    if line.len() < most_units { Ok(line) } else { Err(CommandLineError::TooLong) }
}

/// Returns an ASCII character as a UTF-16 unit.
pub(crate) const fn unit(character: char) -> u16 {
    character as u16
}

#[cfg(test)]
pub(crate) fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}
