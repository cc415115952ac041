//! The texts that `CreateProcessW` is given, in UTF-16.
//!
//! Nothing in here calls the system, so the tests of it run everywhere.
//!
//! | file | what |
//! |---|---|
//! | `command_line.rs` | arguments as a C library takes them apart again |
//! | `batch.rs` | arguments of a batch file, which `cmd.exe` reads first |
//! | `environment.rs` | the environment |
//! | `search.rs` | where a program is looked for |
//! | `path.rs` | what a path is, before the system has a say in it |

pub(crate) mod batch;
pub(crate) mod command_line;
pub(crate) mod environment;
pub(crate) mod path;
pub(crate) mod search;

#[cfg(test)]
pub(crate) mod oracle;

use super::BadInput;

/// `CreateProcessW` takes a command line of at most so many units, its NUL counted.
const MOST_UNITS: usize = 32_767;

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arg {
    /// The program is to find it among its arguments just so.
    Plain(Vec<u16>),
    /// It stands on the command line as it is.
    Raw(Vec<u16>),
}

/// Why there is no command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It would be longer than its reader takes.
    TooLong,
    /// It would mean something else.
    Bad(BadInput),
}

/// The line, if it and a NUL fit.
fn fitting(line: Vec<u16>, most_units: usize) -> Result<Vec<u16>, Refused> {
    if line.len() < most_units { Ok(line) } else { Err(Refused::TooLong) }
}

/// An ASCII character as a unit.
pub(crate) const fn unit(character: char) -> u16 {
    character as u16
}

#[cfg(test)]
pub(crate) fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}
