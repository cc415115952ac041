//! Options of `lock`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::values::{Span, parse_count};

/// Options of `lock`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The lock ends with the command and all that it has started, whatever ends them. It is one lock for all programs
of this user; with --in, for all users who can use that folder.

Exit codes:
  75     the lock was not free within --timeout, and the command did not run
  125    pipewright itself failed: wrong usage, or the lock cannot be opened
  other  those of pipewright run: the code of the command, 126, 127, or 128+N

Examples:
  pipewright lock backup -- rsync -a src/ dst/
  pipewright lock gpu -j2 --timeout 1h -- python3 train.py")]
pub(crate) struct LockOptions {
    /// Allow N commands at once
    #[arg(short, long, value_name = "N", allow_hyphen_values = true, value_hint = ValueHint::Other, default_value = "1",
          value_parser = parse_holders)]
    pub(crate) jobs: u32,

    /// Give up after waiting DUR for the lock
    #[arg(long, value_name = "DUR", allow_hyphen_values = true, value_hint = ValueHint::Other)]
    pub(crate) timeout: Option<Span>,

    /// Keep the lock in DIR, for all users with access to it
    #[arg(long = "in", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: Option<PathBuf>,

    /// Name of the lock: letters, digits, and . _ -
    #[arg(value_hint = ValueHint::Other, value_parser = parse_name)]
    pub(crate) name: String,

    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD",
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// The most commands at once. Each is a file, and a thread while the tool waits.
const MOST_HOLDERS: u32 = 1000;

fn parse_holders(text: &str) -> Result<u32, String> {
    match parse_count(text)? {
        count @ 1..=MOST_HOLDERS => Ok(count),
        _ => Err(format!("must be from 1 to {MOST_HOLDERS}")),
    }
}

/// Parses a name, which becomes that of a file.
fn parse_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
    match text.chars().all(is_plain) && !text.starts_with('.') && (1..=100).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err(format!("\"{text}\" is not a name: write letters, digits, and . _ -")),
    }
}
