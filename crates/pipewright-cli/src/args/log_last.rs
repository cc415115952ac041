//! `batch --resume LOG` with options after the log.
//!
//! The parser takes everything after the first word for the words of a command. It has to, in the other form of `batch`.

use std::ffi::OsString;

use clap::{Error, Parser as _};

use super::called::own_args;
use super::{Args, BatchOptions, ToolCommand};

/// Parses the arguments of this process.
///
/// # Errors
/// Wrong usage, as clap describes it.
pub(crate) fn parse() -> Result<Args, Error> {
    let args = Args::try_parse_from(own_args())?;
    let ToolCommand::Batch(options) = &args.command else { return Ok(args) };
    let Some((log, moved)) = log_last(std::env::args_os().collect(), &options.0) else {
        return Ok(args);
    };
    // An option that is wrong is the error to report.
    let again = Args::try_parse_from(moved)?;
    match &again.command {
        ToolCommand::Batch(options) if is_resume_of(&options.0, &log) => Ok(again),
        // It could be a command: its meaning must not change.
        _ => Ok(args),
    }
}

/// Returns the log, and the arguments with the log behind all options. `None`: no option follows a log.
fn log_last(mut all: Vec<OsString>, options: &BatchOptions) -> Option<(OsString, Vec<OsString>)> {
    let [log, after, ..] = &options.words[..] else { return None };
    let is_option = after.as_encoded_bytes().starts_with(b"-");
    let at = all.len().checked_sub(options.words.len())?;
    let is_command = at > 0 && all.get(at - 1).is_some_and(|word| word == "--");
    if !options.resume || options.log.is_some() || !is_option || is_command {
        return None;
    }
    let log = log.clone();
    all.remove(at);
    all.extend(["--".into(), log.clone()]);
    Some((log, all))
}

fn is_resume_of(options: &BatchOptions, log: &OsString) -> bool {
    options.resume && options.log.is_none() && options.words == [log.clone()]
}
